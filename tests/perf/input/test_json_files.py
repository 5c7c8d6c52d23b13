"""Data of JSON files: forms of tensors, streams, several files, timestamps, payloads."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from naiad.perf.input.build import build_streams
from naiad.perf.input.element_bytes import encode_bytes_elements
from naiad.perf.input.json_tensor import read_tensor
from naiad.perf.input.location import Location
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, StepStream
from naiad.tensor.dtypes import BY_WIRE, DATATYPES
from support.perf_models import model, tensor

PAIR = model(tensor("INPUT0", "INT32", 2), max_batch_size=8)
HERE = Location(Path("x.json"))


def write(folder: Path, value: Any, name: str = "data.json") -> Path:
    """A JSON file."""
    file = folder / name
    file.write_text(json.dumps(value))
    return file


def streams_of(described: ModelDescription, *files: Path, **settings: Any) -> list[StepStream]:
    """The streams of the files."""
    return build_streams(InputSettings(source="", paths=files, **settings), described)


def numbers(stream: StepStream) -> list[list[int]]:
    """The elements of the first input of each step."""
    return [list(struct.unpack(f"<{len(s.inputs[0].data) // 4}i", s.inputs[0].data)) for s in stream.steps]


def rows(*values: int) -> list[dict[str, list[int]]]:
    """Steps for ``PAIR``."""
    return [{"INPUT0": [value, -value]} for value in values]


# Forms of a tensor

INT32 = tensor("INPUT0", "INT32", 2, 2)
FOUR = struct.pack("<4i", 1, 2, 3, 4)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3, 4],
        [[1, 2], [3, 4]],
        {"content": [1, 2, 3, 4]},
        {"content": [[1, 2], [3, 4]], "shape": [2, 2]},
        {"b64": base64.b64encode(FOUR).decode()},
        {"content": {"b64": base64.b64encode(FOUR).decode()}, "shape": [2, 2]},
        {"b64": base64.b64encode(FOUR).decode().rstrip("=")},
        {"b64": "\n".join(base64.b64encode(FOUR).decode())},
    ],
)
def test_forms_of_a_tensor(value: Any) -> None:
    found = read_tensor(INT32, value, {}, HERE)
    assert (found.name, found.datatype, found.shape, found.data) == ("INPUT0", "INT32", (2, 2), FOUR)


@pytest.mark.parametrize(
    ("shape", "value", "shapes", "expected"),
    [
        ((-1,), [1, 2, 3], {}, (3,)),
        ((-1, 3), [1, 2, 3, 4, 5, 6], {}, (2, 3)),
        ((-1, -1), [[1, 2, 3], [4, 5, 6]], {}, (2, 3)),
        ((-1, -1), [1, 2, 3, 4, 5, 6], {"INPUT0": (3, 2)}, (3, 2)),
        ((-1, -1), {"content": [1, 2, 3, 4, 5, 6], "shape": [1, 6]}, {"INPUT0": (3, 2)}, (1, 6)),
        ((-1,), {"b64": base64.b64encode(FOUR).decode()}, {}, (4,)),
        ((-1, 2), [], {}, (0, 2)),
        ((), [5], {}, ()),
    ],
)
def test_where_a_variable_shape_comes_from(
    shape: tuple[int, ...], value: Any, shapes: dict[str, tuple[int, ...]], expected: tuple[int, ...]
) -> None:
    assert read_tensor(tensor("INPUT0", "INT32", *shape), value, shapes, HERE).shape == expected


@pytest.mark.parametrize("wire", [t.wire for t in DATATYPES if t.wire not in ("BYTES", "BF16")])
@hypothesis_settings(max_examples=20)
@given(data=st.data())
def test_numbers_keep_their_value(wire: str, data: st.DataObject) -> None:
    dtype = BY_WIRE[wire].numpy
    extra = {"allow_nan": False} if dtype.kind == "f" else {}
    array = data.draw(of_numpy.arrays(dtype, of_numpy.array_shapes(max_dims=3), elements=extra or None))
    described = tensor("A", wire, *array.shape)
    for value in (array.tolist(), array.ravel().tolist()):
        found = read_tensor(described, json.loads(json.dumps(value)), {}, HERE)
        assert found.data == array.tobytes()
        assert found.shape == array.shape


@given(st.lists(st.text(), max_size=20))
def test_strings_keep_their_text(texts: list[str]) -> None:
    described = tensor("A", "BYTES", len(texts))
    elements = [text.encode("utf-8", "surrogatepass") for text in texts]
    packed = encode_bytes_elements(elements)
    assert read_tensor(described, texts, {}, HERE).data == packed
    assert read_tensor(described, {"b64": base64.b64encode(packed).decode()}, {}, HERE).data == packed


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1))
def test_floats_are_rounded_to_bf16(values: list[float]) -> None:
    found = read_tensor(tensor("A", "BF16", len(values)), values, {}, HERE)
    expected = np.array(values).astype(BY_WIRE["BF16"].numpy)
    assert found.data == expected.tobytes()


def test_numbers_that_json_has_no_form_for(tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_text('\ufeff{"data": [{"A": [NaN, Infinity, -Infinity, 1]}]}')
    [stream] = streams_of(model(tensor("A", "FP32", 4)), file)
    found = np.frombuffer(stream.steps[0].inputs[0].data, np.float32)
    np.testing.assert_array_equal(found, np.array([np.nan, np.inf, -np.inf, 1], np.float32))


# Streams


@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [
        (1, [[0, 0], [1, -1], [2, -2]]),
        (2, [[0, 0, 1, -1], [2, -2, 0, 0], [1, -1, 2, -2]]),
        (3, [[0, 0, 1, -1, 2, -2]]),
        (4, [[0, 0, 1, -1, 2, -2, 0, 0], [1, -1, 2, -2, 0, 0, 1, -1], [2, -2, 0, 0, 1, -1, 2, -2]]),
    ],
)
def test_batches_go_around_the_steps(tmp_path: Path, batch_size: int, expected: list[list[int]]) -> None:
    [stream] = streams_of(PAIR, write(tmp_path, {"data": rows(0, 1, 2)}), batch_size=batch_size)
    assert numbers(stream) == expected
    assert {step.inputs[0].shape for step in stream.steps} == {(batch_size, 2)}


def test_a_list_of_lists_is_a_list_of_sequences(tmp_path: Path) -> None:
    described = model(tensor("INPUT0", "INT32", 2), is_sequence=True)
    first = write(tmp_path, {"data": [rows(0, 1), rows(2)]})
    second = write(tmp_path, {"data": [rows(3, 4, 5)]}, "second.json")
    found = streams_of(described, first, second)
    assert [numbers(stream) for stream in found] == [[[0, 0], [1, -1]], [[2, -2]], [[3, -3], [4, -4], [5, -5]]]


def test_without_sequences_all_lists_take_turns(tmp_path: Path) -> None:
    [stream] = streams_of(PAIR, write(tmp_path, {"data": [rows(0, 1), rows(2)]}))
    assert numbers(stream) == [[0, 0], [1, -1], [2, -2]]


def test_files_and_directories_follow_one_another(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "INPUT0").write_bytes(struct.pack("<2i", 7, 8))
    files = [write(tmp_path, {"data": rows(0, 1)}), folder, write(tmp_path, {"data": rows(2)}, "second.json")]
    [stream] = streams_of(PAIR, *files)
    assert numbers(stream) == [[0, 0], [1, -1], [7, 8], [2, -2]]


def test_an_optional_input_may_be_left_out(tmp_path: Path) -> None:
    described = model(tensor("A", "INT32", 1), tensor("B", "INT32", 1, is_optional=True))
    [stream] = streams_of(described, write(tmp_path, {"data": [{"A": [1]}, {"B": [2], "A": [3]}]}))
    assert [[value.name for value in step.inputs] for step in stream.steps] == [["A"], ["A", "B"]]


def test_a_step_may_name_its_model(tmp_path: Path) -> None:
    """GenAI-Perf writes it, and perf_analyzer passes over it."""
    [stream] = streams_of(PAIR, write(tmp_path, {"data": [{"model": "pair", "INPUT0": [1, 2]}]}))
    assert numbers(stream) == [[1, 2]]
    described = model(tensor("model", "INT32", 1))
    [stream] = streams_of(described, write(tmp_path, {"data": [{"model": [5]}]}))
    assert numbers(stream) == [[5]]


def test_a_batch_has_a_shape_tensor_once(tmp_path: Path) -> None:
    described = model(
        tensor("A", "INT32", 2), tensor("S", "INT32", 2, is_shape_tensor=True), max_batch_size=4, is_sequence=False
    )
    [stream] = streams_of(described, write(tmp_path, {"data": [{"A": [1, 2], "S": [3, 4]}]}), batch_size=2)
    assert [(value.name, value.shape) for value in stream.steps[0].inputs] == [("A", (2, 2)), ("S", (2,))]


def test_validation_data_are_those_of_their_step(tmp_path: Path) -> None:
    outputs = [{"OUTPUT0": [value, value]} for value in (10, 11, 12)]
    file = write(tmp_path, {"data": rows(0, 1, 2), "validation_data": outputs})
    [stream] = streams_of(PAIR, file, batch_size=2)
    found = [[(v.name, v.shape, struct.unpack("<4i", v.data)) for v in step.expected] for step in stream.steps]
    pairs = [(10, 11), (12, 10), (11, 12)]
    assert found == [[("OUTPUT0", (2, 2), (first, first, second, second))] for first, second in pairs]


# What services without tensors get


def test_payloads_with_times_and_sessions(tmp_path: Path) -> None:
    steps = [
        {"payload": [{"prompt": "a"}], "session_id": ["s1"], "delay": [250], "timestamp": 0},
        {"payload": {"prompt": "b"}, "session_id": "s2", "timestamp": 5},
        {"payload": [{"prompt": "c"}], "session_id": "s1", "timestamp": [7.5]},
    ]
    first, second = streams_of(model(), write(tmp_path, {"data": steps}))
    assert [(s.payload, s.session_id, s.delay_ms, s.timestamp_ms) for s in first.steps] == [
        (b'{"prompt":"a"}', "s1", 250.0, 0.0),
        (b'{"prompt":"c"}', "s1", 0.0, 7.5),
    ]
    assert [(s.payload, s.session_id, s.delay_ms, s.timestamp_ms) for s in second.steps] == [
        (b'{"prompt":"b"}', "s2", 0.0, 5.0)
    ]


def test_an_input_may_be_called_timestamp(tmp_path: Path) -> None:
    described = model(tensor("timestamp", "INT32", 1))
    [stream] = streams_of(described, write(tmp_path, {"data": [{"timestamp": [5]}]}))
    assert numbers(stream) == [[5]]
    assert stream.steps[0].timestamp_ms is None
