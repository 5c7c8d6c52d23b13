"""Requests cut into parts and answers written, always against protobuf's own reading of the same bytes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from naiad.config.messages import message_class
from naiad.errors import InvalidArgumentError
from naiad.request import Outputs, RequestOptions
from naiad.shared_memory.region import RegionRef
from naiad.shared_memory.spec import RegionOptions
from naiad.tensor.bytes_codec import encode_bytes
from naiad.tensor.dtypes import BY_WIRE, DATATYPES
from naiad.wire.v2.plan import MAX_HEADS, OutputFormats
from naiad.wire.v2.proto import MAX_SCANNED_FIELDS, ProtoPlan, ProtoResponseHead, named_model, raw_offsets, scan
from support.infer_requests import requests, spoil
from support.kept_objects import kept

Request = message_class("ModelInferRequest")
Response = message_class("ModelInferResponse")
Streamed = message_class("ModelStreamInferResponse")


def parsed(raw: bytes) -> Any:
    """The message; None when protobuf refuses the bytes."""
    try:
        return Request.FromString(raw)
    except DecodeError:
        return None


# Requests


@given(requests())
def test_what_protobuf_writes_is_cut_into_its_parts(message: Any) -> None:
    raw = message.SerializeToString(deterministic=True)
    layout = scan(raw)
    assert layout is not None
    assert layout.read_id(raw) == message.id
    assert [raw[begin:end] for begin, end in layout.raws] == list(message.raw_input_contents)
    assert layout.sizes() == [len(r) for r in message.raw_input_contents]
    name = Request.FromString(raw[: layout.id_at])
    assert name == Request(model_name=message.model_name, model_version=message.model_version)
    described = Request.FromString(raw[layout.key_at : layout.raw_at])
    assert (described.inputs, described.outputs) == (message.inputs, message.outputs)
    assert described.parameters == message.parameters
    assert [layout.raw_at + o for o in raw_offsets(layout.sizes())] == [begin for begin, _ in layout.raws]


@given(st.text(max_size=40), st.text(max_size=10), st.text(max_size=5), st.integers(0, 200))
def test_the_beginning_names_the_model(name: str, version: str, request_id: str, size: int) -> None:
    message = Request(model_name=name, model_version=version, id=request_id)
    message.inputs.add(name="X", datatype="FP32", shape=[1])
    raw = message.SerializeToString()
    known = Request(model_name=name, model_version=version).ByteSize()
    is_short = max(len(name.encode()), len(version.encode())) <= 127
    # One byte more tells that no other field with a name follows.
    wanted = (name, version) if is_short and size > known else ("", "")
    assert named_model(memoryview(raw[:size])) == wanted


@pytest.mark.parametrize(
    "raw",
    [
        *(
            b"",
            b"\x0a",
            b"\x0a\x05ab",
            b"\x0a\x80\x01" + b"a" * 128 + b"\x1a",
            b"\x0a\x02\xff\xfe\x1a",
            b"\x22\x00\x0a\x01a\x1a",
        ),
        b"\x12\x01" + b"1" + b"\x0a\x7f" + b"a" * 100,
    ],
)
def test_a_beginning_that_names_no_model(raw: bytes) -> None:
    assert named_model(memoryview(raw)) == ("", "")


def assert_agrees(raw: bytes) -> None:
    """If the bytes can be cut, protobuf's reading of the description and of all of them are the same."""
    layout = scan(raw)
    for kind in (bytearray, memoryview):
        assert scan(kind(raw)) == layout
    if layout is None:
        return
    whole, described = parsed(raw), parsed(raw[: layout.raw_at])
    assert (whole is None) == (described is None)
    if whole is None:
        return
    assert layout.read_id(raw) == whole.id
    assert [raw[begin:end] for begin, end in layout.raws] == list(whole.raw_input_contents)
    whole.ClearField("raw_input_contents")
    assert whole == described or str(whole) == str(described)


@pytest.mark.slow
@given(requests(), st.randoms(use_true_random=False))
def test_spoilt_requests_are_read_as_protobuf_reads_them(message: Any, random: Any) -> None:
    assert_agrees(spoil(message.SerializeToString(), random))


@pytest.mark.slow
@given(st.lists(st.sampled_from([0, 1, 2, 3, 8, 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A, 0x80, 0x81, 0xFF])))
def test_any_bytes_are_read_as_protobuf_reads_them(raw: list[int]) -> None:
    assert_agrees(bytes(raw))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x12\x011\x0a\x01m", "another order"),
        (b"\x0a\x01m\x0a\x01n", "a name twice"),
        (b"\x3a\x01a\x2a\x00", "an input behind a tensor"),
        (b"\x0a\x81\x00m", "a length that is not the shortest"),
        (b"\x0a\x05m", "an end too early"),
        (b"\x3a", "no length"),
        (b"\x08\x01", "another wire type"),
        (b"\x42\x00", "an unknown field"),
        (b"\x3a\x80\x80\x80\x80\x80\x01", "a length of six bytes"),
        (b"\x3a\x00" * (MAX_SCANNED_FIELDS + 1), "very many fields"),
    ],
)
def test_other_forms_are_left_to_protobuf(raw: bytes, why: str) -> None:
    assert scan(raw) is None, why


def test_lengths_of_several_bytes_are_read() -> None:
    for size in (0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21):
        raw = Request(model_name="m", raw_input_contents=[bytes(size), b"x"]).SerializeToString()
        layout = scan(raw)
        assert layout is not None
        assert layout.sizes() == [size, 1]


def test_an_empty_request_has_no_parts() -> None:
    assert scan(b"") == (0, 0, 0, [])


# Answers


def plan(outputs: dict[str, str], version: int = 3) -> ProtoPlan:
    dtypes = {n: BY_WIRE[w] for n, w in outputs.items()}
    return ProtoPlan("m", version, RequestOptions(tuple(outputs)), OutputFormats(dtypes, dict.fromkeys(outputs, True)))


def expected(request_id: str, outputs: dict[str, np.ndarray], dtypes: dict[str, str]) -> Any:
    answer = Response(model_name="m", model_version="3", id=request_id)
    for name, array in outputs.items():
        answer.outputs.add(name=name, datatype=dtypes[name], shape=array.shape)
        answer.raw_output_contents.append(encode_bytes(array) if dtypes[name] == "BYTES" else array.tobytes())
    return answer


def joined(answer: Any) -> bytes:
    raw = b"".join(answer[0])
    assert len(raw) == answer[1]
    return raw


@st.composite
def outputs(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    names = draw(st.lists(st.text(min_size=1, max_size=150), max_size=3, unique=True))
    arrays, dtypes = {}, {}
    for name in names:
        dtype = draw(st.sampled_from(DATATYPES))
        shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        count = int(np.prod(shape))
        if dtype.is_bytes:
            array = np.empty(count, np.object_)
            array[:] = [draw(st.binary(max_size=3)) for _ in range(count)]
        else:
            size = count * dtype.itemsize
            array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype.numpy)
        array = array.reshape(shape)
        arrays[name] = array.T if draw(st.booleans()) else array
        dtypes[name] = dtype.wire
    return arrays, dtypes


@pytest.mark.slow
@given(outputs(), st.text(max_size=200))
def test_answers_are_what_protobuf_would_read(found: Any, request_id: str) -> None:
    arrays, dtypes = found
    made = plan(dtypes)
    wanted = expected(request_id, arrays, dtypes)
    for _ in range(2):
        assert Response.FromString(joined(made.encode_response(request_id, arrays))) == wanted
    for final in (True, False):
        wanted.parameters["triton_final_response"].bool_param = final
        streamed = Streamed.FromString(joined(made.streamed(request_id, arrays, final)))
        assert streamed == Streamed(infer_response=wanted)
        assert streamed.infer_response.parameters["triton_final_response"].HasField("bool_param")


def test_outputs_are_in_the_order_of_the_plan_and_missing_ones_left_out() -> None:
    made = plan({"a": "FP32", "b": "INT8", "c": "BYTES"})
    arrays = {"c": np.array([b"x"], object), "a": np.zeros(2, np.float32)}
    answer = Response.FromString(joined(made.encode_response("", arrays)))
    assert [o.name for o in answer.outputs] == ["a", "c"]
    assert list(answer.raw_output_contents) == [bytes(8), b"\x01\x00\x00\x00x"]
    plain = plan({"a": "FP32", "b": "INT8"})
    assert [o.name for o in Response.FromString(joined(plain.encode_response("", arrays))).outputs] == ["a"]


def test_tensors_are_not_copied() -> None:
    array = np.zeros((3, 5), np.float32)
    answer = plan({"a": "FP32"}).encode_response("1", {"a": array})
    assert any(part is array for part in answer[0])
    half = np.zeros(4, ml_dtypes.bfloat16)
    tensor = plan({"a": "BF16"}).encode_response("", {"a": half})[0][-1]
    assert np.shares_memory(np.frombuffer(tensor, np.uint8), half)


def test_heads_are_kept_by_shape_and_few_at_a_time() -> None:
    made = plan({"a": "INT8"})
    sizes = []
    for n in (*range(1, 2 * MAX_HEADS), 1):
        array = np.ones((1, n), np.int8)
        answer = Response.FromString(joined(made.encode_response("", {"a": array})))
        assert list(answer.outputs[0].shape) == [1, n]
        assert answer.raw_output_contents[0] == bytes([1] * n)
        sizes.append(len(kept(made)))
    assert max(sizes) < 1.3 * max(sizes[: MAX_HEADS + 1])


def test_of_outputs_in_regions_shapes_alone_are_said() -> None:
    names = {"a": "FP32", "b": "BYTES"}
    regions = RegionOptions((), tuple((name, RegionRef("r", 0, 8)) for name in names))
    dtypes = {n: BY_WIRE[w] for n, w in names.items()}
    options = RequestOptions(tuple(names), regions=regions)
    made = ProtoPlan("m", 3, options, OutputFormats(dtypes, dict.fromkeys(names, True)))
    for request_id in ("", "7", ""):
        for shape in ([1, 2], [3, 4], [1, 2]):
            arrays = {"a": np.zeros(shape, np.float32), "b": np.full(shape, b"x", object)}
            wanted = Response(model_name="m", model_version="3", id=request_id, raw_output_contents=[b"", b""])
            for name, wire in names.items():
                wanted.outputs.add(name=name, datatype=wire, shape=shape)
            assert Response.FromString(joined(made.encode_response(request_id, arrays))) == wanted
            # What has more to say takes the long way to the same.
            assert Response.FromString(joined(made.encode_response(request_id, Outputs(arrays)))) == wanted
    assert made.of_version(4).encode_response("", arrays)[0][0] != made.encode_response("", arrays)[0][0]
    left_out = Response.FromString(joined(made.encode_response("", {"b": arrays["b"]})))
    assert [output.name for output in left_out.outputs] == ["b"]


def test_an_answer_that_no_client_could_take_is_refused() -> None:
    text = r"^Response has byte size 21474836\d\d which exceeds gRPC's byte size limit 2147483647\.$"
    with pytest.raises(InvalidArgumentError, match=text):
        ProtoResponseHead(b"", b"", [2**31])
    made = plan({"a": "INT8"})
    array = np.ones((1, 1), np.int8)
    made.cache_head(array.shape, ProtoResponseHead(b"", b"", [2**31 - 7]))
    assert made.encode_response("", {"a": array})[1] == 2**31 - 1
    for answer in (made.encode_response, made.streamed):
        with pytest.raises(InvalidArgumentError, match=text):
            answer("id", {"a": array})
