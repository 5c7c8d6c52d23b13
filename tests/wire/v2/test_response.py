"""An answer's bytes against what its JSON part says about them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from naiad.errors import InvalidArgumentError
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DATATYPES, DataType
from naiad.wire.v2.response import EncodedResponse, OutputPart, encode_response, tensor_bytes

FIXED = [t for t in DATATYPES if not t.is_bytes]


def part(array: np.ndarray, wire: str, binary: bool, name: str = "Y") -> OutputPart:
    return OutputPart(name, BY_WIRE[wire], array, binary)


def read_back(answer: EncodedResponse) -> list[np.ndarray]:
    """The outputs of an answer, read from its JSON and the bytes behind it as a client does."""
    rest = b"".join(answer.tensors)
    arrays = []
    for output in json.loads(answer.json)["outputs"]:
        dtype, shape = BY_WIRE[output["datatype"]], tuple(output["shape"])
        if "parameters" in output:
            size = output["parameters"]["binary_data_size"]
            raw, rest = rest[:size], rest[size:]
            assert len(raw) == size
            flat = decode_bytes(raw, math.prod(shape), "Y") if dtype.is_bytes else np.frombuffer(raw, dtype.numpy)
        elif dtype.is_bytes:
            flat = np.array([e.encode() for e in output["data"]], object)
        else:
            flat = np.array(output["data"], dtype.numpy)
        arrays.append(flat.reshape(shape))
    assert rest == b""
    return arrays


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def test_keys_and_their_order() -> None:
    outputs = [
        part(np.array([[1, 2]], np.int32), "INT32", False, "A"),
        part(np.array([3.0], np.float32), "FP32", True, "B"),
    ]
    answer = encode_response('m"', 12, "7", outputs)
    assert answer.json == (
        b'{"id":"7","model_name":"m\\"","model_version":"12","outputs":['
        b'{"name":"A","datatype":"INT32","shape":[1,2],"data":[1,2]},'
        b'{"name":"B","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}'
    )
    assert b"".join(answer.tensors) == np.float32(3).tobytes()
    assert answer.binary


def test_without_id_and_without_outputs() -> None:
    answer = encode_response("m", 1, "", [])
    assert answer == EncodedResponse(b'{"model_name":"m","model_version":"1","outputs":[]}', [], False)


@given(st.text(min_size=1))
def test_any_id_comes_back(request_id: str) -> None:
    try:
        request_id.encode()
    except UnicodeEncodeError:
        return
    assert json.loads(encode_response("m", 1, request_id, []).json)["id"] == request_id


@st.composite
def any_output(draw: st.DrawFn) -> OutputPart:
    dtype: DataType = draw(st.sampled_from(DATATYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    if dtype.is_bytes:
        size = math.prod(shape)
        array = np.empty(size, object)
        array[:] = [e.encode() for e in draw(st.lists(st.text("aé\x00", max_size=3), min_size=size, max_size=size))]
        array = array.reshape(shape)
    else:
        raw = draw(
            hnp.arrays(np.uint8, (*shape, dtype.itemsize), elements=st.integers(0, 1 if dtype.wire == "BOOL" else 99))
        )
        array = np.frombuffer(raw.tobytes(), dtype.numpy).reshape(shape)
    layout = draw(st.sampled_from(["as it is", "transposed", "backwards", "fortran"]))
    if layout == "transposed":
        array = array.T
    elif layout == "backwards" and array.ndim:
        array = array[::-1]
    elif layout == "fortran":
        array = np.asfortranarray(array)
    binary = not dtype.in_json or draw(st.booleans())
    return OutputPart(draw(st.text('XYé"', min_size=1, max_size=3)), dtype, array, binary)


@pytest.mark.slow
@given(st.lists(any_output(), max_size=4))
def test_what_the_json_says_is_what_follows(outputs: list[OutputPart]) -> None:
    answer = encode_response("m", 1, "i", outputs)
    assert answer.binary == any(o.binary for o in outputs)
    assert len(answer.tensors) == sum(o.binary for o in outputs)
    assert [o["name"] for o in json.loads(answer.json)["outputs"]] == [o.name for o in outputs]
    for found, output in zip(read_back(answer), outputs, strict=True):
        same(found, output.array)


@pytest.mark.parametrize("dtype", FIXED, ids=lambda t: t.wire)
def test_memory_that_is_the_wire_form_is_not_copied(dtype: DataType) -> None:
    array = np.ones((2, 3), dtype.numpy)
    raw = tensor_bytes(array, dtype)
    assert isinstance(raw, memoryview)
    assert (raw.itemsize, len(raw)) == (1, array.nbytes)
    assert np.shares_memory(np.frombuffer(raw, np.uint8), array.view(np.uint8))


@pytest.mark.parametrize("wire", ["FP16", "BF16"])
def test_half_size_floats_are_binary_or_refused(wire: str) -> None:
    array = np.ones(2, BY_WIRE[wire].numpy)
    same(read_back(encode_response("m", 1, "", [part(array, wire, True)]))[0], array)
    with pytest.raises(InvalidArgumentError, match=f"sending {wire} data via JSON is not supported"):
        encode_response("m", 1, "", [part(array, wire, False)])


def test_bytes_that_are_not_utf8_are_binary_or_refused() -> None:
    array = np.array([b"\xff"], object)
    same(read_back(encode_response("m", 1, "", [part(array, "BYTES", True)]))[0], array)
    with pytest.raises(InvalidArgumentError):
        encode_response("m", 1, "", [part(array, "BYTES", False)])
