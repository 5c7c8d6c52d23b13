"""Calls of bound functions: what they are given, and what becomes of what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import naiad
from naiad.binding.call import FunctionCall
from naiad.binding.function import bind_function
from naiad.errors import BackendError

X = np.arange(3, dtype=np.float32)


def call(function: Any, given: dict[str, Any] | None = None, **more: Any) -> Any:
    return FunctionCall(bind_function("m", function, **more)).plain({"x": X} if given is None else given)


@pytest.mark.parametrize(
    ("returned", "kind", "expected"),
    [
        ([1, 2], naiad.FP32, np.array([1, 2], np.float32)),
        (X.astype(np.float64), naiad.FP32, X),
        (7, naiad.INT32[1], np.array([7], np.int32)),
        (True, naiad.FP32, np.array([1], np.float32)),
        ("ä", naiad.BYTES, np.array(["ä".encode()], object)),
        (["a", b"b"], naiad.BYTES, np.array([b"a", b"b"], object)),
        (np.array(["a", "b"]), naiad.BYTES[2], np.array([b"a", b"b"], object)),
        ({"output": X}, naiad.FP32[3], X),
    ],
)
def test_results_become_arrays(returned: Any, kind: naiad.TensorType, expected: Any) -> None:
    found = call(lambda x: returned, outputs={"output": kind})["output"]
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("returned", "outputs", "text"),
    [
        (X, {"y": naiad.INT32}, "returned float32 for the output 'y', expected INT32: convert the result with astype"),
        (X, {"y": naiad.FP32[2]}, "returned shape [3] for the output 'y', expected [2]"),
        (X, {"y": naiad.FP32[-1, -1]}, "returned shape [3] for the output 'y', expected [-1, -1]"),
        (X, {"y": naiad.FP32, "z": naiad.FP32}, "returned a ndarray, expected a tuple or a dict with the outputs"),
        ((X,), {"y": naiad.FP32, "z": naiad.FP32}, "returned 1 values, expected"),
        (None, {"y": naiad.FP32}, "returned None, expected the outputs ['y']: a path through it has no return"),
        ({"z": X}, {"y": naiad.FP32}, "returned the outputs ['z'], expected ['y']"),
        ([b"a", 5], {"y": naiad.BYTES}, "returned int for an output of BYTES, expected str or bytes"),
    ],
)
def test_results_that_do_not_fit(returned: Any, outputs: Any, text: str) -> None:
    with pytest.raises(BackendError) as error:
        call(lambda x: returned, outputs=outputs)
    assert text in str(error.value)


def test_plain_values_are_given_as_such() -> None:
    def describe(name: str, count: int, share: float, flag: bool, raw: bytes, missing: int = 3) -> str:
        return repr((name, count, share, flag, raw, missing))

    given = {
        "name": np.array([b"n"], object),
        "count": np.array([2]),
        "share": np.array([0.5]),
        "flag": np.array([True]),
        "raw": np.array([b"r"], object),
    }
    assert call(describe, given)["output"].tolist() == [repr(("n", 2, 0.5, True, b"r", 3)).encode()]


def test_functions_without_names_get_their_inputs_in_order() -> None:
    given = {"b": X, "a": 2 * X}
    found = call(np.subtract, given, inputs={"a": naiad.FP32, "b": naiad.FP32})
    assert found["output"].tolist() == X.tolist()


def test_a_batch_returns_a_row_for_each_row() -> None:
    @naiad.batch
    def total(x):  # type: ignore[no-untyped-def]
        return x.sum(axis=1) if len(x) == 2 else x.sum()

    call_of = FunctionCall(bind_function("m", total, {"x": naiad.FP32[3]}, {"y": naiad.FP32[1]}))
    with pytest.raises(BackendError, match=r"returned shape \[2\] for the output 'y', expected \[2, 1\]"):
        call_of.plain({"x": np.stack([X, X])})
    with pytest.raises(BackendError, match=r"returned shape \[\] for the output 'y', expected \[3, 1\]"):
        call_of.plain({"x": np.stack([X, X, X])})


def test_each_copy_of_a_class_has_its_own_state() -> None:
    events: list[str] = []

    class Counter:
        def setup(self, device: str) -> None:
            events.append(f"setup on {device}")
            self.calls = 0

        def predict(self, x):  # type: ignore[no-untyped-def]
            self.calls += 1
            return x * self.calls

        def teardown(self) -> None:
            events.append(f"teardown after {self.calls}")

    bound = bind_function("m", Counter)
    first, second = FunctionCall(bound), FunctionCall(bound)
    first.plain({"x": X})
    assert first.plain({"x": X})["output"].tolist() == (2 * X).tolist()
    assert second.plain({"x": X})["output"].tolist() == X.tolist()
    first.close()
    second.close()
    assert events == ["setup on cpu"] * 2 + ["teardown after 2", "teardown after 1"]
