"""The built-in backends ``repeat`` and ``square``: what they answer, and which configurations they refuse.

The texts and the semantics are those of the reference's backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.backend_api.decoupled import DecoupledBackend, Delay, Step
from naiad.errors import CancelledError, InvalidArgumentError, ModelLoadError, UnknownError
from support.backend_contract import context, group, spec, started
from support.config_texts import parameters

DECOUPLED = " model_transaction_policy { decoupled: true }"
REPEAT = """backend: "repeat"
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 }, { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
    { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 }, { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
"""
SQUARE = """backend: "square"
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
"""


class Asker:
    is_cancelled = False


def steps(text: str, inputs: dict[str, Any], outputs: Sequence[str], asker: Any = None, take: int = 100) -> list[Step]:
    """The steps of one request to a new instance, at most ``take`` of them."""
    model = spec(text)
    name = "repeat" if "repeat" in text else "square"
    with started(name, context(Path("none")), model) as backend:
        assert isinstance(backend, DecoupledBackend)
        instance = backend.create_decoupled(group(model), 0)
        found = []
        for step in instance.steps(inputs, outputs, asker or Asker()):
            found.append(step)
            if len(found) == take:
                break
        return found


def repeated(values: Sequence[int], delays: Sequence[int], wait: int = 0) -> dict[str, Any]:
    return {
        "IN": np.array(values, np.int32),
        "DELAY": np.array(delays, np.uint32),
        "WAIT": np.array([wait], np.uint32),
    }


def said(step: Step) -> Any:
    """A step in short."""
    if isinstance(step, dict):
        return {name: array.tolist() for name, array in step.items()}
    return type(step) if isinstance(step, Exception) else step


def test_repeat_sends_each_element_after_its_delay() -> None:
    found = steps(REPEAT + DECOUPLED, repeated([7, 8, 9], [0, 5, 0]), ("OUT", "IDX"))
    assert [said(s) for s in found] == [
        {"OUT": [7], "IDX": [0]},
        Delay(0.005),
        {"OUT": [8], "IDX": [1]},
        {"OUT": [9], "IDX": [2]},
    ]
    assert [step["IDX"].dtype for step in found if isinstance(step, dict)] == [np.uint32] * 3


def test_repeat_sends_what_is_wanted_and_nothing_for_nothing() -> None:
    assert [said(s) for s in steps(REPEAT + DECOUPLED, repeated([1], [0]), ("IDX",))] == [{"IDX": [0]}]
    assert steps(REPEAT + DECOUPLED, repeated([], []), ("OUT",)) == []


def test_repeat_wants_a_delay_for_each_element() -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected IN and DELAY shape to match, got \[2\] and \[1\]"):
        steps(REPEAT + DECOUPLED, repeated([1, 2], [0]), ("OUT",))


def test_repeat_is_busy_for_as_long_as_the_request_says() -> None:
    model = spec(REPEAT + DECOUPLED)
    with started("repeat", context(Path("none")), model) as backend:
        assert isinstance(backend, DecoupledBackend)
        instance = backend.create_decoupled(group(model), 0)
        assert instance.busy_s(repeated([1], [0], wait=250)) == 0.25
        assert instance.busy_s(repeated([1], [0])) == 0


def test_a_cancelled_request_is_repeated_no_more() -> None:
    asker = Asker()
    asker.is_cancelled = True
    assert [said(s) for s in steps(REPEAT + DECOUPLED, repeated([1, 2], [9, 9]), ("OUT",), asker)] == [Delay(0.009)]


@pytest.mark.parametrize("batched", [False, True])
def test_square_says_as_often_how_often(batched: bool) -> None:
    text = SQUARE + DECOUPLED + (" max_batch_size: 8 " if batched else "")
    given = np.array([[3]] if batched else [3], np.int32)
    assert [said(s) for s in steps(text, {"IN": given}, ("OUT",))] == [{"OUT": given.tolist()}] * 3
    assert steps(text, {"IN": 0 * given}, ("OUT",)) == []


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([[2], [2]], "unexpected shape for IN input"),
        ([-1], "IN says how many responses are wanted: found -1, expected 0 or more"),
        ([-(2**31)], "found -2147483648"),
    ],
)
def test_square_refuses(given: Any, error: str) -> None:
    with pytest.raises(InvalidArgumentError, match=error):
        steps(SQUARE + DECOUPLED, {"IN": np.array(given, np.int32)}, ("OUT",))


def test_square_takes_its_time_fails_and_is_empty_as_it_is_told() -> None:
    told = parameters(
        CUSTOM_INFER_DELAY_NS=1_000_000, CUSTOM_OUTPUT_DELAY_NS=2_000_000, CUSTOM_FAIL_COUNT=1, CUSTOM_EMPTY_COUNT=2
    )
    infer, output = Delay(0.001, can_be_cut=False), Delay(0.002, writes=True, can_be_cut=False)
    found = [said(s) for s in steps(SQUARE + DECOUPLED + told, {"IN": np.array([4], np.int32)}, ("OUT",))]
    assert found == [infer, output, {"OUT": [4]}, infer, output, UnknownError, infer, None, infer, None]


def test_more_failures_than_responses() -> None:
    told = parameters(CUSTOM_FAIL_COUNT=9)
    found = [said(s) for s in steps(SQUARE + DECOUPLED + told, {"IN": np.array([2], np.int32)}, ("OUT",))]
    assert found == [UnknownError, UnknownError]


def test_square_notices_between_two_responses_that_it_is_cancelled() -> None:
    asker = Asker()
    asker.is_cancelled = True
    told = parameters(CUSTOM_CANCEL_DELAY_NS=1_000_000, CUSTOM_INFER_DELAY_NS=5)
    found = [said(s) for s in steps(SQUARE + DECOUPLED + told, {"IN": np.array([4], np.int32)}, ("OUT",), asker)]
    assert found == [Delay(0.001, can_be_cut=False), CancelledError]


def test_a_billion_responses_are_made_one_by_one() -> None:
    assert len(steps(SQUARE + DECOUPLED, {"IN": np.array([2**31 - 1], np.int32)}, ("OUT",), take=5)) == 5


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (REPEAT + "max_batch_size: 1" + DECOUPLED, "repeat backend only supports models with max_batch_size == 0"),
        (REPEAT.replace('"IDX"', '"ID"'), "expected second output tensor name to be IDX, got ID"),
        (REPEAT.replace('"DELAY"', '"D"'), "expected second input tensor name to be DELAY, got D"),
        (
            REPEAT.replace('"IN" data_type: TYPE_INT32', '"IN" data_type: TYPE_INT64'),
            "expected IN datatype to be INT32",
        ),
        (REPEAT.replace("TYPE_INT32 dims: -1", "TYPE_INT32 dims: [ 2, 2 ]"), "to have one dimension, got [2,2]"),
        (REPEAT.replace("TYPE_INT32 dims: -1", "TYPE_INT32 dims: 4"), "to match, got [4] and [-1]"),
        (
            SQUARE.replace("} output", "} input { name: 'B' data_type: TYPE_INT8 dims: 1 } output"),
            "expected 1 input, got 2",
        ),
        (SQUARE.replace('"OUT"', '"O"'), "expected output tensor name to be OUT, got O"),
        (SQUARE.replace("TYPE_INT32 dims: 1 }", "TYPE_INT32 dims: 2 }", 1), "expected IN shape to be [1], got [2]"),
        (SQUARE + parameters(CUSTOM_FAIL_COUNT="many"), "expected a whole number of at least 0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(text: str, error: str) -> None:
    policy = "" if DECOUPLED in text else DECOUPLED
    with pytest.raises(ModelLoadError) as refused:
        steps(text + policy, {}, ())
    assert error in str(refused.value)
