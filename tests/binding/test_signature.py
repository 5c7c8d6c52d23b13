"""The signature of bound functions: hints, ``inputs=`` and ``outputs=``, and what is assumed without either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest

import naiad
from naiad.binding.function import BoundFunction, FunctionKind, bind_function
from naiad.errors import InvalidArgumentError

Row = Annotated[np.ndarray, naiad.FP32[-1, 16]]


class Named(TypedDict):
    label: str
    score: Annotated[np.ndarray, naiad.FP32[3]]


def shown(bound: BoundFunction) -> tuple[dict[str, str], dict[str, str]]:
    found = bound.signature
    return {n: str(i.tensor) for n, i in found.inputs.items()}, {n: str(t) for n, t in found.outputs.items()}


def hinted(x: Row, y: Annotated[np.ndarray, naiad.INT64[2]]) -> Row:
    return x


def plain(text: str, times: int = 1) -> str:
    return text * times


def two(x: Row) -> tuple[Row, Annotated[np.ndarray, naiad.BOOL]]:
    return x, x > 0


def named(x: Row) -> Named:
    raise NotImplementedError


def generated(x: Row) -> Iterator[Annotated[np.ndarray, naiad.FP16[4]]]:
    yield x


async def streamed(x: Row) -> AsyncIterator[Row]:
    yield x


async def awaited(x: Row) -> Row:
    return x


class Model:
    def setup(self, device: str) -> None: ...

    def predict(self, x: Row) -> Row:
        return x


class Callable:
    def __call__(self, x: Row) -> Row:
        return x


@pytest.mark.parametrize(
    ("function", "inputs", "outputs", "kind"),
    [
        (hinted, {"x": "FP32[-1, 16]", "y": "INT64[2]"}, {"output": "FP32[-1, 16]"}, "plain"),
        (plain, {"text": "BYTES[1]", "times": "INT64[1]"}, {"output": "BYTES[1]"}, "plain"),
        (two, {"x": "FP32[-1, 16]"}, {"output_0": "FP32[-1, 16]", "output_1": "BOOL[-1]"}, "plain"),
        (named, {"x": "FP32[-1, 16]"}, {"label": "BYTES[1]", "score": "FP32[3]"}, "plain"),
        (generated, {"x": "FP32[-1, 16]"}, {"output": "FP16[4]"}, "generator"),
        (streamed, {"x": "FP32[-1, 16]"}, {"output": "FP32[-1, 16]"}, "async generator"),
        (awaited, {"x": "FP32[-1, 16]"}, {"output": "FP32[-1, 16]"}, "coroutine"),
        (Model, {"x": "FP32[-1, 16]"}, {"output": "FP32[-1, 16]"}, "plain"),
        (Model(), {"x": "FP32[-1, 16]"}, {"output": "FP32[-1, 16]"}, "plain"),
        (Callable(), {"x": "FP32[-1, 16]"}, {"output": "FP32[-1, 16]"}, "plain"),
        (lambda a, b=None: a, {"a": "FP32[-1]", "b": "FP32[-1]"}, {"output": "FP32[-1]"}, "plain"),
    ],
)
def test_the_signature_of(function: Any, inputs: dict[str, str], outputs: dict[str, str], kind: str) -> None:
    bound = bind_function("m", function)
    assert shown(bound) == (inputs, outputs)
    assert bound.kind == kind


def test_a_parameter_with_a_default_is_optional() -> None:
    found = bind_function("m", plain).signature.inputs
    assert {name: given.optional for name, given in found.items()} == {"text": False, "times": True}


def test_what_nobody_stated_is_noted() -> None:
    assert bind_function("m", lambda x: x).signature.assumed == ("x", "output")
    assert bind_function("m", hinted).signature.assumed == ()


def test_inputs_and_outputs_count_before_hints() -> None:
    bound = bind_function("m", hinted, {"x": naiad.FP64[3], "y": naiad.FP64}, {"z": naiad.BYTES[1]})
    assert shown(bound) == ({"x": "FP64[3]", "y": "FP64[-1]"}, {"z": "BYTES[1]"})


def test_a_function_without_parameter_names_takes_its_inputs_in_their_order() -> None:
    assert not bind_function("m", np.add, {"a": naiad.FP32, "b": naiad.FP32}).signature.by_name


def test_batches() -> None:
    @naiad.batch(max_rows=8, max_delay_ms=1.5)
    def batched(x: Row) -> Row:
        return x

    rule = bind_function("m", batched).batching
    assert rule is not None
    assert (rule.max_rows, rule.max_delay_ms) == (8, 1.5)
    assert bind_function("m", naiad.batch(plain)).batching is not None
    del plain.__dict__["__naiad_batch__"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: naiad.FP32[()], "found FP32[], expected at least one dimension"),
        (lambda: naiad.FP32[0], "found FP32[0], expected"),
        (lambda: bind_function("m", 5), "model 'm': found 5, expected a function, or a class with the method predict"),
        (lambda: bind_function("m", lambda: 1), "takes no input: write `x: Annotated["),
        (lambda: bind_function("m", np.add), "is no Python function, so its parameters do not say"),
        (lambda: bind_function("m", unclear), "the type of parameter 'x' is ndarray, expected one that says datatype"),
        (lambda: bind_function("m", plain, {"text": "FP32"}), "the type of 'text' is 'FP32', expected one such as"),  # type: ignore[dict-item]
        (lambda: bind_function("m", plain, workers="fork"), "found workers='fork', expected 'thread' or 'process'"),
        (lambda: bind_function("m", plain, instances=0), "found instances=0, expected a number from 1 on"),
        (
            lambda: bind_function("m", Model(), instances=2),
            "2 instances would share one object of Model: bind the class",
        ),
        (lambda: bind_function("m", naiad.batch(lambda x: (yield x))), "a generator responds to one request at a time"),
        (lambda: naiad.batch(max_rows=0), "found @batch(max_rows=0"),
    ],
)
def test_what_cannot_be_bound(make: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        make()
    assert text in str(error.value)


def unclear(x: np.ndarray) -> None: ...


def test_kinds_that_stream() -> None:
    assert [kind for kind in FunctionKind if kind.streams] == ["generator", "async generator"]
