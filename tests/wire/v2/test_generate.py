"""Flat JSON to requests, and outputs to flat JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import BackendError, InvalidArgumentError, MalformedRequestError
from naiad.request import Outputs
from naiad.tensor.dtypes import BY_WIRE, BYTES
from naiad.wire.v2.generate import encode_generated, read_generate
from naiad.wire.v2.header import InferHeader


def model(**shapes: tuple[int, ...]) -> ModelSpec:
    """A model with FP32 inputs of these shapes."""
    inputs = {n: TensorSpec(n, BY_WIRE["FP32"], shape, shape) for n, shape in shapes.items()}
    return ModelSpec("m", "", "python", 0, inputs, {}, ())


def read(spec: ModelSpec, request: Any) -> InferHeader:
    return read_generate(request if isinstance(request, bytes) else json.dumps(request).encode(), spec.inputs)


@pytest.mark.parametrize(
    ("shape", "count", "found"),
    [
        ((1,), 1, (1,)),
        ((-1,), 3, (3,)),
        ((-1,), 0, (0,)),
        ((-1, 2), 0, (0, 2)),
        ((-1, 1), 3, (3, 1)),
        ((-1, -1), 3, (1, 3)),
        ((-1, 2, -1), 6, (1, 2, 3)),
        ((2, -1), 6, (2, 3)),
        ((-1, 4), 8, (2, 4)),
        ((2, 2), 4, (2, 2)),
        ((), 1, ()),
    ],
)
def test_the_number_of_values_becomes_a_shape(shape: tuple[int, ...], count: int, found: tuple[int, ...]) -> None:
    (given,) = read(model(x=shape), {"x": [0.5] * count}).inputs
    assert (given.name, given.shape, given.elements, given.data) == ("x", found, count, [0.5] * count)


@pytest.mark.parametrize(("shape", "count"), [((1,), 2), ((1,), 0), ((2, -1), 3), ((2, 2), 8), ((), 2), ((0,), 1)])
def test_values_that_fit_no_shape(shape: tuple[int, ...], count: int) -> None:
    text = "^The schema can not convert input 'x' to tensor with proper shape$"
    with pytest.raises(InvalidArgumentError, match=text):
        read(model(x=shape), {"x": [0.5] * count})


def test_members_are_inputs_or_parameters_also_inside_parameters() -> None:
    request = {"id": "7", "x": 1.5, "n": 3, "parameters": {"y": [1, 2], "s": "text", "f": 0.5, "b": True}}
    header = read(model(x=(1,), y=(-1,)), request)
    assert header.id == "7"
    assert header.parameters == {"id": "7", "n": 3, "s": "text", "f": 0.5, "b": True}
    assert [(given.name, given.data) for given in header.inputs] == [("x", [1.5]), ("y", [1, 2])]
    assert header.outputs is None


def test_an_input_may_be_called_id() -> None:
    header = read(model(id=(1,)), {"id": 5})
    assert (header.id, header.inputs[0].data, header.parameters) == ("", [5], {})


REFUSED: list[tuple[Any, type[InvalidArgumentError], str]] = [
    (b"{", MalformedRequestError, "failed to parse the request JSON buffer"),
    (b"", MalformedRequestError, "failed to parse the request JSON buffer"),
    ([1], MalformedRequestError, "must be a JSON object, found an array"),
    ({"id": 7}, MalformedRequestError, "'id': expected a string, found the number 7"),
    ({"x": [[1]]}, MalformedRequestError, "'x': expected a value or a flat array, found an array at element 0"),
    ({"n": None}, InvalidArgumentError, "^parameter 'n' has invalid type"),
    ({"n": [1]}, InvalidArgumentError, "^parameter 'n' has invalid type"),
    ({"triton_x": 1}, InvalidArgumentError, "reserved for Triton"),
    ({"parameters": 1}, InvalidArgumentError, "^Expected JSON object for keyword: 'parameters', found the number 1"),
    (
        {"parameters": {"n": {"deep": 1}}},
        InvalidArgumentError,
        "^Converting keyword: 'parameters': parameter 'n' has invalid type",
    ),
    ({"parameters": {"parameters": {}}}, InvalidArgumentError, "parameter 'parameters' has invalid type"),
    ({"parameters": {"x": [1, 2]}}, InvalidArgumentError, "^Converting keyword: 'parameters': The schema can not"),
]


@pytest.mark.parametrize(("request_", "kind", "text"), REFUSED)
def test_what_is_refused(request_: Any, kind: type[InvalidArgumentError], text: str) -> None:
    with pytest.raises(kind, match=text):
        read(model(x=(1,)), request_)


def test_an_input_called_parameters() -> None:
    text = "^Keyword 'parameters' for nested schema also given as input tensor name$"
    with pytest.raises(InvalidArgumentError, match=text):
        read(model(parameters=(1,)), {"parameters": 1})


@pytest.mark.parametrize("raw", [b'{"x":1,"x":2}', b'{"x":1,"parameters":{"x":2}}', b'{"parameters":{"x":2,"x":2}}'])
def test_an_input_that_is_given_twice_is_there_twice(raw: bytes) -> None:
    # The checks against the model refuse it.
    assert [given.name for given in read(model(x=(1,)), raw).inputs] == ["x", "x"]


def test_repeated_names_change_nothing_else() -> None:
    raw = b'{"x":[1],"s":"x","x":[1],"big":123456789012345678901234567890,"parameters":{"t":"\\u00e4"}}'
    assert read(model(x=(1,)), raw).parameters == {"s": "x", "big": 1.2345678901234568e29, "t": "ä"}


def text(*values: bytes) -> np.ndarray[Any, Any]:
    return np.array(values, np.object_)


def test_members_of_an_answer_are_in_order_and_single_values_bare() -> None:
    fp32, int32, boolean = BY_WIRE["FP32"], BY_WIRE["INT32"], BY_WIRE["BOOL"]
    outputs = Outputs(
        {
            "text": text("ü".encode()),
            "many": np.array([[1, 2], [3, 4]], np.int32),
            "a": np.array([[0.1]], np.float32),
            "none": np.empty((0,), np.float32),
            "yes": np.array([True]),
            "unwanted": np.array([1], np.int32),
        },
        {"z": "last", "b": 1.5},
    )
    wanted = {"text": BYTES, "many": int32, "a": fp32, "none": fp32, "yes": boolean, "missing": fp32}
    assert encode_generated("m", 2, "7", outputs, wanted).decode() == (
        '{"a":0.1,"b":1.5,"id":"7","many":[1,2,3,4],"model_name":"m","model_version":"2","none":[],"text":"ü",'
        '"yes":true,"z":"last"}'
    )
    assert encode_generated("m", 1, "", {}, {}) == b'{"model_name":"m","model_version":"1"}'


def test_outputs_and_parameters_that_json_cannot_hold() -> None:
    with pytest.raises(InvalidArgumentError, match="sending FP16 data via JSON"):
        encode_generated("m", 1, "", {"h": np.ones(1, np.float16)}, {"h": BY_WIRE["FP16"]})
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        encode_generated("m", 1, "", {"t": text(b"\xff")}, {"t": BYTES})
    with pytest.raises(BackendError, match="'p'"):
        encode_generated("m", 1, "", Outputs({}, {"p": 2**70}), {})
