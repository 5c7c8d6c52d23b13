"""The JSON part of an inference request: what is read from it, and what each mistake is told."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import InvalidArgumentError, MalformedRequestError, NaiadError, UnsupportedError
from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import BY_WIRE
from naiad.wire.v2.header import MAX_ELEMENTS, InferHeader, parse_infer_header

INPUT = {"name": "A", "shape": [2], "datatype": "FP32", "data": [1, 2]}
ONE_SOURCE = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)


def parse(value: Any) -> InferHeader:
    return parse_infer_header(json.dumps(value).encode())


def with_input(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{k: v for k, v in {**INPUT, **changes}.items() if v is not ...}]}


def refused(raw: Any, kind: type[NaiadError]) -> str:
    """The text of the error that a request gets."""
    with pytest.raises(NaiadError) as caught:
        parse_infer_header(raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    assert type(caught.value) is kind
    return str(caught.value)


# What is read


def test_the_least_request() -> None:
    header = parse({"inputs": []})
    assert header == InferHeader()
    assert header.outputs is None


def test_everything_that_can_be_said() -> None:
    header = parse(
        {
            "id": 'é"\\',
            "parameters": {
                "sequence_id": 2**64 - 1,
                "sequence_start": True,
                "sequence_end": False,
                "priority": 3,
                "timeout": 5000,
                "binary_data_output": True,
                "custom": 1.5,
                "text": "x",
                "flag": True,
            },
            "inputs": [
                {"name": "A", "shape": [2, 3], "datatype": "INT8", "parameters": {"binary_data_size": 6}},
                {"name": "B", "shape": [], "datatype": "BYTES", "data": ["x"]},
            ],
            "outputs": [{"name": "X", "parameters": {"binary_data": True, "classification": 4}}, {"name": "Y"}],
            "unknown": None,
        }
    )
    assert header.id == 'é"\\'
    assert (header.sequence_id, header.sequence_start, header.sequence_end) == (2**64 - 1, True, False)
    assert (header.priority, header.timeout_us, header.binary_default) == (3, 5000, True)
    assert header.parameters == {"custom": 1.5, "text": "x", "flag": True}
    first, second = header.inputs
    assert (first.name, first.dtype, first.shape, first.elements) == ("A", BY_WIRE["INT8"], (2, 3), 6)
    assert (first.data, first.binary_size) == (None, 6)
    assert (second.shape, second.elements, second.data, second.binary_size) == ((), 1, ["x"], None)
    assert [(o.name, o.binary, o.classification) for o in header.outputs or []] == [("X", True, 4), ("Y", False, 0)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type) -> None:
    assert parse_infer_header(kind(b'{"inputs":[]}')).inputs == []


def test_a_string_can_be_a_sequence_id() -> None:
    assert parse({"parameters": {"sequence_id": "s"}, "inputs": []}).sequence_id == "s"


def test_no_outputs_named_is_as_none_given() -> None:
    assert parse({"inputs": [], "outputs": []}).outputs is None


def test_of_a_key_given_twice_the_last_counts() -> None:
    assert parse_infer_header(b'{"id":"1","inputs":[],"id":"2"}').id == "2"


def test_parameters_of_an_input_that_are_no_object_are_ignored() -> None:
    header = parse(with_input(parameters=["binary_data_size"]))
    assert header.inputs[0].data == [1, 2]


def test_the_bare_words_are_read_as_the_reference_does() -> None:
    raw = b'{"inputs":[{"name":"A","shape":[3],"datatype":"FP32","data":[NaN,Infinity,-Infinity]}]}'
    data = parse_infer_header(raw).inputs[0].data
    assert data is not None
    assert math.isnan(data[0])
    assert data[1:] == [math.inf, -math.inf]


def test_the_bare_words_in_strings_change_nothing() -> None:
    assert parse_infer_header(b'{"id":"NaN","inputs":[]}').id == "NaN"


def test_empty_dimensions_are_counted() -> None:
    assert parse(with_input(shape=[3, 0, 7], data=[])).inputs[0].elements == 0


# What is refused


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([], "an array"),
        ("x", "the string 'x'"),
        (5, "the number 5"),
        (None, "null"),
        (True, "true"),
        ("a" * 100, "the string '" + "a" * 40 + "...'"),
    ],
)
def test_the_request_must_be_an_object(value: Any, shown: str) -> None:
    assert refused(value, MalformedRequestError) == (
        f"Unable to parse 'inputs': the request must be a JSON object, found {shown}"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[",
        b'{"inputs":[]',
        b'{"inputs":[],}',
        b"{'inputs':[]}",
        b'{"inputs":[]} x',
        b'{"id":"\xff","inputs":[]}',
        b'{"id":"\xed\xa0\x80","inputs":[]}',
        b'{"id":"\\ud800","inputs":[]}',
        b"NaN {",
        b'{"inputs":[NaN',
        b"[" * 5000 + b"NaN",
        b"[" * 200_000,
        b'{"a":NaN,"inputs":' + b"[" * 200_000,
        b'{"a":1e999,"inputs":[]}',
        b"\x00",
    ],
)
def test_broken_json(raw: bytes) -> None:
    assert re.match(r"failed to parse the request JSON buffer: .+ at \d+$", refused(raw, MalformedRequestError))


@pytest.mark.parametrize("bad", [b'"\\ud800"', b'"\xff"', b'"\xed\xa0\x80"'])
def test_the_bare_words_open_no_way_for_strings_that_are_none(bad: bytes) -> None:
    raw = b'{"id":%s,"parameters":{"x":NaN},"inputs":[]}' % bad
    assert refused(raw, MalformedRequestError).startswith("failed to parse the request JSON buffer: ")


def test_a_surrogate_pair_beside_a_bare_word_is_a_character() -> None:
    header = parse_infer_header(b'{"id":"\\ud83d\\ude00","parameters":{"x":NaN},"inputs":[]}')
    assert header.id == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, "Unable to parse 'inputs': the request has no member 'inputs'"),
        ({"inputs": {}}, "Unable to parse 'inputs': expected an array, found an object"),
        ({"inputs": None}, "Unable to parse 'inputs': expected an array, found null"),
        ({"id": 7, "inputs": []}, "Unable to parse 'id': expected a string, found the number 7"),
        ({"id": None, "inputs": []}, "Unable to parse 'id': expected a string, found null"),
        ({"outputs": None, "inputs": []}, "Unable to parse 'outputs': expected an array, found null"),
        ({"outputs": {}, "inputs": []}, "Unable to parse 'outputs': expected an array, found an object"),
        (
            {"outputs": ["X"], "inputs": []},
            "Unable to parse 'outputs': outputs[0] must be an object, found the string 'X'",
        ),
        ({"outputs": [{}], "inputs": []}, "Unable to parse 'name': outputs[0] has no member 'name'"),
        ({"outputs": [{"name": 1}], "inputs": []}, "Unable to parse 'name': expected a string, found the number 1"),
        (
            {"outputs": [{"name": "X", "parameters": {"binary_data": 1}}], "inputs": []},
            "Unable to parse 'binary_data': expected true or false, found the number 1",
        ),
        (
            {"outputs": [{"name": "X", "parameters": {"classification": -1}}], "inputs": []},
            "Unable to parse 'classification': expected an unsigned integer, found the number -1",
        ),
        (
            {"parameters": [], "inputs": []},
            "failed to get request params.: 'parameters' must be an object, found an array",
        ),
        (
            {"parameters": {"sequence_id": 1.5}, "inputs": []},
            "Unable to parse 'sequence_id': expected an unsigned integer or a string, found the number 1.5",
        ),
        (
            {"parameters": {"sequence_start": "yes"}, "inputs": []},
            "Unable to parse 'sequence_start': expected true or false, found the string 'yes'",
        ),
        (
            {"parameters": {"priority": True}, "inputs": []},
            "Unable to parse 'priority': expected an unsigned integer, found true",
        ),
        (
            {"parameters": {"timeout": -1}, "inputs": []},
            "Unable to parse 'timeout': expected an unsigned integer, found the number -1",
        ),
        (
            {"parameters": {"timeout": 2**64}, "inputs": []},
            "Unable to parse 'timeout': expected an unsigned integer, found the number 1.8446744073709552e+19",
        ),
        (
            {"parameters": {"binary_data_output": 0}, "inputs": []},
            "Unable to parse 'binary_data_output': expected true or false, found the number 0",
        ),
        (with_input(name=...), "Unable to parse 'name': inputs[0] has no member 'name'"),
        (with_input(name=["A"]), "Unable to parse 'name': expected a string, found an array"),
        (with_input(shape=...), "Unable to parse 'shape': inputs[0] has no member 'shape'"),
        (with_input(shape=2), "Unable to parse 'shape': expected an array, found the number 2"),
        (
            with_input(shape=["2"]),
            "Unable to parse 'shape' of input 'A': dimensions must be unsigned integers, found the string '2'",
        ),
        (
            with_input(shape=[2.0]),
            "Unable to parse 'shape' of input 'A': dimensions must be unsigned integers, found the number 2.0",
        ),
        (
            with_input(shape=[True]),
            "Unable to parse 'shape' of input 'A': dimensions must be unsigned integers, found true",
        ),
        (
            with_input(shape=[2, -1]),
            "invalid shape for input 'A': shape [2,-1] contains one or more invalid dimensions: -1 is outside 0 to "
            f"{MAX_ELEMENTS}",
        ),
        (
            with_input(shape=[2**63]),
            f"invalid shape for input 'A': shape [{2**63}] contains one or more invalid dimensions: {2**63} is outside "
            f"0 to {MAX_ELEMENTS}",
        ),
        (with_input(datatype=...), "Unable to parse 'datatype': inputs[0] has no member 'datatype'"),
        (with_input(datatype=8), "Unable to parse 'datatype': expected a string, found the number 8"),
        (with_input(data={}), "Unable to parse 'data': expected an array, found an object"),
        (with_input(data=None), "Unable to parse 'data': expected an array, found null"),
        (
            with_input(data=..., parameters={"binary_data_size": "8"}),
            "Unable to parse 'binary_data_size': expected an unsigned integer, found the string '8'",
        ),
    ],
)
def test_what_is_malformed(request_: Any, text: str) -> None:
    assert refused(request_, MalformedRequestError) == text


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (with_input(datatype="fp32"), "invalid datatype for input A"),
        (with_input(datatype=""), "invalid datatype for input A"),
        (with_input(data=...), ONE_SOURCE + "no field is set"),
        (
            with_input(parameters={"binary_data_size": 8}),
            ONE_SOURCE + "set 'data' 'binary_data_size'",
        ),
        (
            with_input(parameters={"shared_memory_region": "r"}),
            ONE_SOURCE + "set 'data' 'shared_memory_region'",
        ),
        (
            {"inputs": ["x"]},
            ONE_SOURCE + "no field is set",
        ),
        (
            {"parameters": {"triton_x": 1}, "inputs": []},
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        ),
        (
            {"parameters": {"x": None}, "inputs": []},
            "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"parameters": {"x": [1]}, "inputs": []},
            "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            with_input(shape=[MAX_ELEMENTS, 16]),
            f"invalid shape for input 'A': shape [{MAX_ELEMENTS},16] causes total element count to exceed maximum size "
            f"of {MAX_ELEMENTS}",
        ),
        (
            with_input(shape=[0, MAX_ELEMENTS, 16]),
            f"invalid shape for input 'A': shape [0,{MAX_ELEMENTS},16] causes total element count to exceed maximum "
            f"size of {MAX_ELEMENTS}",
        ),
    ],
)
def test_what_is_not_allowed(request_: Any, text: str) -> None:
    assert refused(request_, InvalidArgumentError) == text


@pytest.mark.parametrize(
    "request_",
    [
        with_input(data=..., parameters={"shared_memory_region": "r"}),
        {"inputs": [], "outputs": [{"name": "A", "parameters": {"shared_memory_region": "r"}}]},
    ],
)
def test_a_region_needs_a_size(request_: Any) -> None:
    text = refused(request_, MalformedRequestError)
    assert re.fullmatch(
        "Unable to parse 'shared_memory_byte_size': 'parameters' of (in|out)put 'A' has no member "
        "'shared_memory_byte_size'",
        text,
    )


@pytest.mark.parametrize(("name", "value"), [("region", 7), ("offset", -1), ("offset", "1"), ("byte_size", 2**64)])
def test_parts_of_regions_are_read_strictly(name: str, value: object) -> None:
    part = {"shared_memory_region": "r", "shared_memory_byte_size": 64, f"shared_memory_{name}": value}
    text = refused(with_input(data=..., parameters=part), MalformedRequestError)
    assert text.startswith(f"Unable to parse 'shared_memory_{name}': expected ")


@pytest.mark.parametrize(("name", "value"), [("offset", "1"), ("byte_size", True)])
def test_parts_without_a_region_are_read_strictly_too(name: str, value: object) -> None:
    part = {f"shared_memory_{name}": value}
    text = refused(with_input(parameters=part), MalformedRequestError)
    assert text.startswith(f"Unable to parse 'shared_memory_{name}': expected ")
    outputs = [{"name": "X", "parameters": part}]
    assert refused({**with_input(), "outputs": outputs}, MalformedRequestError) == text
    assert parse(with_input(parameters={f"shared_memory_{name}": 1})).inputs[0].region is None


def test_parts_of_regions() -> None:
    part = {"shared_memory_region": "r", "shared_memory_byte_size": 64}
    root = with_input(data=..., parameters=part)
    root["outputs"] = [{"name": "X", "parameters": {**part, "shared_memory_offset": 8, "binary_data": False}}]
    header = parse(root)
    assert header.inputs[0].region == RegionRef("r", 0, 64)
    assert header.outputs is not None
    assert header.outputs[0].region == RegionRef("r", 8, 64)


@pytest.mark.parametrize("other", [{"classification": 1}, {"binary_data": True}])
def test_an_output_in_a_region_is_nothing_else(other: dict[str, object]) -> None:
    part = {"shared_memory_region": "r", "shared_memory_byte_size": 64, **other}
    text = refused({"inputs": [], "outputs": [{"name": "X", "parameters": part}]}, InvalidArgumentError)
    assert text == f"Output can't set both 'shared_memory_region' and '{next(iter(other))}'"


def test_the_place_of_a_mistake_is_counted() -> None:
    text = refused({"inputs": [INPUT, INPUT, {"name": "C", "data": []}]}, MalformedRequestError)
    assert text == "Unable to parse 'shape': inputs[2] has no member 'shape'"


def test_a_shape_of_many_dimensions_is_refused_quickly() -> None:
    assert "expected at most 64" in refused(with_input(shape=[2**40] * 100_000), InvalidArgumentError)
    assert "exceed maximum size" in refused(with_input(shape=[2**40] * 64), InvalidArgumentError)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
KEYS = ["id", "parameters", "inputs", "outputs", "name", "shape", "datatype", "data", "binary_data_size"]


@pytest.mark.slow
@given(
    st.recursive(
        JSON | st.just("FP32") | st.just([2]),
        lambda inner: st.dictionaries(st.sampled_from(KEYS), inner | st.lists(inner, max_size=2), max_size=6),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused_with_a_text_that_can_be_sent(value: Any) -> None:
    try:
        header = parse_infer_header(json.dumps(value).encode())
    except (InvalidArgumentError, UnsupportedError) as error:
        str(error).encode()
    else:
        assert isinstance(header, InferHeader)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        parse_infer_header(raw)
    except InvalidArgumentError as error:
        str(error).encode()


def test_a_byte_order_mark_is_read_over() -> None:
    assert (
        parse_infer_header(b"\xef\xbb\xbf" + json.dumps({"inputs": [INPUT]}).encode()).inputs[0].name == INPUT["name"]
    )


@pytest.mark.parametrize("length", [128, 129])
def test_a_sequence_id_has_up_to_128_characters(length: int) -> None:
    request = {"inputs": [INPUT], "parameters": {"sequence_id": "x" * length}}
    if length == 128:
        assert parse_infer_header(json.dumps(request).encode()).sequence_id == "x" * length
    else:
        assert refused(request, UnsupportedError) == "string correlation ID cannot be longer than 128 characters"
