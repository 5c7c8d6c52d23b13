"""Files that do not fit: each is one message, with what was found, what was expected, and where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from naiad.perf.input.build import build_streams
from naiad.perf.input.error import PerfInputError
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription
from support.perf_models import model, tensor

PAIR = model(tensor("INPUT0", "INT32", 2), max_batch_size=8)
TEXTS = model(tensor("INPUT0", "BYTES", 2))
FREE = model(tensor("INPUT0", "FP16", -1, -1))
AT = "( Location stream id: 0, step id: 0) in 'data.json'"


def problem_of(described: ModelDescription, *paths: str | Path, **settings: Any) -> str:
    """The text of the error."""
    with pytest.raises(PerfInputError) as error:
        build_streams(InputSettings(source="", paths=tuple(map(Path, paths)), **settings), described)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        (b'{"data":[\n {"INPUT0":[1,2}]}', 2, 16, "unexpected character"),
        (b"", 1, 1, "empty document"),
        (b'{"data": [', 1, 11, "unexpected end of data"),
        (b'{"data":\n\n [{"A": "\xff"}]}', 3, 10, "the byte 0xff is not UTF-8"),
        (b"\x80\x81", 1, 1, "the byte 0x80 is not UTF-8"),
    ],
)
def test_no_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, line: int, column: int, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.json").write_bytes(text)
    found = problem_of(PAIR, "data.json")
    start = "failed to parse the specified json file for reading provided data: 'data.json', "
    assert found.startswith(f"{start}line {line}, column {column}: ")
    assert reason in found


BAD = [
    (PAIR, [1], "The json file doesn't contain data field: found an array in 'data.json', expected \"data\""),
    (PAIR, {"x": 1}, "The json file doesn't contain data field: found the members x in 'data.json', expected \"data\""),
    (PAIR, {"data": 5}, "\"data\" in 'data.json' is the number 5, expected an array of steps"),
    (PAIR, {"data": []}, "'data.json' holds no step: \"data\" is empty"),
    (PAIR, {"data": [[], []]}, "'data.json' holds no step: \"data\" is empty"),
    (PAIR, {"data": [5]}, f"Input data file is malformed. {AT}: found the number 5, expected an object"),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2]}, [{"INPUT0": [1, 2]}]]},
        "Inconsistency in input-data provided. Can not have a combination of objects and arrays inside of the Data",
    ),
    (PAIR, {"data": [{}]}, f"missing tensor INPUT0 {AT}: found nothing, and it is not optional"),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2], "X": [1]}]},
        f"The input or output 'X' is not found in the model configuration {AT}: expected INPUT0",
    ),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2]}], "validation_data": [{"X": [1]}]},
        f"The input or output 'X' is not found in the model configuration {AT}: expected OUTPUT0",
    ),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2]}], "validation_data": []},
        "The 'validation_data' field doesn't align with 'data' field in the json file 'data.json': found 0 entries, "
        "expected 1",
    ),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2, 3]}]},
        "mismatch in the data provided for INPUT0. Expected: 8 bytes, Got: 12 bytes: its shape is [2], its datatype "
        f"INT32 {AT}",
    ),
    (
        PAIR,
        {"data": [{"INPUT0": {"b64": "AQAA"}}]},
        "mismatch in the data provided for INPUT0. Expected: 8 bytes, Got: 3 bytes",
    ),
    (PAIR, {"data": [{"INPUT0": {"b64": "!!!!"}}]}, "the value of the b64 field of 'INPUT0' is no base64"),
    (
        PAIR,
        {"data": [{"INPUT0": {"b64": 7}}]},
        f"the value of b64 field should be of type string {AT}: found the number 7 for 'INPUT0'",
    ),
    (PAIR, {"data": [{"INPUT0": {"shape": [2]}}]}, f"missing content field. {AT}"),
    (
        PAIR,
        {"data": [{"INPUT0": {"content": [1, 2], "shape": "x"}}]},
        f"the shape of 'INPUT0' is the string 'x', expected an array of integers from 0 on {AT}",
    ),
    (PAIR, {"data": [{"INPUT0": {"content": [1, 2], "shape": [-1]}}]}, "the shape of 'INPUT0' is [the number -1]"),
    (
        PAIR,
        {"data": [{"INPUT0": {"content": [1, 2, 3], "shape": [3]}}]},
        'The supplied shape of [3] for input "INPUT0" is incompatible with the model\'s input shape of [2] ' + AT,
    ),
    (
        PAIR,
        {"data": [{"INPUT0": "1,2"}]},
        f"The tensor values are not supported. Expected an array or b64 string {AT}: found the string '1,2'",
    ),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2.5]}]},
        f"unable to find int32_t data in json: element 1 of 'INPUT0' is the number 2.5, expected a value of INT32 {AT}",
    ),
    (PAIR, {"data": [{"INPUT0": [1, 2**31]}]}, "element 1 of 'INPUT0' is the number 2147483648"),
    (PAIR, {"data": [{"INPUT0": [1, True]}]}, "element 1 of 'INPUT0' is true"),
    (PAIR, {"data": [{"INPUT0": [1, [2]]}]}, "element 1 of 'INPUT0' is an array"),
    (PAIR, {"data": [{"INPUT0": [[1], [2, 3]]}]}, "the arrays at depth 2 have different lengths, expected 1 each"),
    (PAIR, {"data": [{"INPUT0": [[1, 2]]}]}, "the nested arrays of 'INPUT0' have the shape [1,2], expected [2]"),
    (TEXTS, {"data": [{"INPUT0": ["a", 2]}]}, "unable to find string data in json: element 1 of 'INPUT0' is the"),
    (TEXTS, {"data": [{"INPUT0": ["a"]}]}, "provided data for input INPUT0 has 1 elements, expect 2: its shape is [2]"),
    (TEXTS, {"data": [{"INPUT0": {"b64": "aGVsbG8="}}]}, "incomplete string data for 'INPUT0'"),
    (
        FREE,
        {"data": [{"INPUT0": [1, 2]}]},
        'The variable-sized tensor "INPUT0" with model shape [-1,-1] needs to have its shape fully defined. See the '
        f'--shape option, or give "shape" beside "content" {AT}',
    ),
    (FREE, {"data": [{"INPUT0": [[1e9]]}]}, "unable to find fp16_t data in json: element 0"),
    (
        model(tensor("INPUT0", "FP64", 1)),
        {"data": [{"INPUT0": ["a"]}]},
        "unable to find fp64 data in json: element 0 of 'INPUT0' is the string",
    ),
    (
        model(tensor("INPUT0", "BOOL", 1)),
        {"data": [{"INPUT0": [2]}]},
        "unable to find bool data in json: element 0 of 'INPUT0' is the number 2",
    ),
    (model(), {"data": [{"model": "m"}]}, f'missing "payload" {AT}: found model'),
    (model(), {"data": [{"payload": "text"}]}, f"\"payload\" is the string 'text', expected an object {AT}"),
    (model(), {"data": [{"payload": [{}, {}]}]}, f'"payload" has 2 elements, expected 1 {AT}'),
    (model(), {"data": [{"payload": {}, "delay": -1}]}, '"delay" is the number -1, expected milliseconds from 0 on'),
    (model(), {"data": [{"payload": {}, "session_id": 5}]}, '"session_id" is the number 5, expected a name'),
    (
        model(),
        {"data": [{"payload": {}, "session_id": "a"}, {"payload": {}}]},
        'found "session_id" in 1 of 2 steps of --input-data, expected it in all or none: the first one without is '
        "step 1",
    ),
    (
        PAIR,
        {"data": [{"INPUT0": [1, 2]}, {"INPUT0": [1, 2], "timestamp": 5}]},
        'found "timestamp" in 1 of 2 steps of --input-data, expected it in all or none: the first one without is '
        "step 0",
    ),
]


@pytest.mark.parametrize(("described", "value", "expected"), BAD, ids=range(len(BAD)))
def test_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, described: ModelDescription, value: Any, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.json").write_text(json.dumps(value))
    assert expected in problem_of(described, "data.json")


def test_the_step_is_counted_over_all_files(tmp_path: Path) -> None:
    for name, value in (("a.json", [1, 2]), ("b.json", [1, "x"])):
        (tmp_path / name).write_text(json.dumps({"data": [{"INPUT0": [1, 2]}, {"INPUT0": value}]}))
    found = problem_of(PAIR, tmp_path / "a.json", tmp_path / "b.json")
    assert found.endswith(f"( Location stream id: 0, step id: 3) in '{tmp_path}/b.json'")


def test_the_stream_is_counted_over_all_files(tmp_path: Path) -> None:
    for name, value in (("a.json", [1, 2]), ("b.json", [1, "x"])):
        (tmp_path / name).write_text(json.dumps({"data": [[{"INPUT0": [1, 2]}], [{"INPUT0": value}]]}))
    found = problem_of(PAIR, tmp_path / "a.json", tmp_path / "b.json")
    assert found.endswith(f"( Location stream id: 3, step id: 0) in '{tmp_path}/b.json'")


def test_steps_that_make_no_batch(tmp_path: Path) -> None:
    described = model(tensor("INPUT0", "INT32", -1), max_batch_size=8)
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [{"INPUT0": [1]}, {"INPUT0": [1, 2]}]}))
    assert problem_of(described, file, batch_size=2) == (
        "can not batch tensors with different shapes together (input 'INPUT0' expected shape [1] and received [2]) "
        "( Location stream id: 0, step id: 0)"
    )


def test_batches_that_exceed_the_memory(tmp_path: Path) -> None:
    described = model(tensor("INPUT0", "UINT8", -1), max_batch_size=1 << 60)
    (tmp_path / "INPUT0").write_bytes(b"abc")
    found = problem_of(described, tmp_path, batch_size=1 << 60)
    assert found.startswith(f"the batches of {1 << 60} of 1 steps have {3 << 60} bytes, expected at most ")
    assert found.endswith(": give fewer steps, or a number of them that is a multiple of -b")


def test_different_inputs_make_no_batch(tmp_path: Path) -> None:
    described = model(tensor("A", "INT32", 1, is_optional=True), tensor("B", "INT32", 1), max_batch_size=8)
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [{"A": [1], "B": [1]}, {"B": [1]}]}))
    found = problem_of(described, file, batch_size=2)
    assert found.startswith("For batch sizes larger than 1, the same set of inputs must be specified for each batch.")


def test_different_shape_tensors_make_no_batch(tmp_path: Path) -> None:
    described = model(tensor("S", "INT32", 1, is_shape_tensor=True), max_batch_size=8)
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [{"S": [1]}, {"S": [2]}]}))
    found = problem_of(described, file, batch_size=2)
    assert found.startswith("The shape tensors should be identical in a batch (mismatch in content of 'S')")


def test_lists_of_steps_do_not_mix_with_steps(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"data": [[{"INPUT0": [1, 2]}]]}))
    (tmp_path / "b.json").write_text(json.dumps({"data": [{"INPUT0": [1, 2]}]}))
    found = problem_of(PAIR, tmp_path / "a.json", tmp_path / "b.json")
    assert found.startswith("Inconsistency in input-data provided.")
    assert "b.json" in found


@hypothesis_settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["data", "INPUT0", "OUTPUT0", "content", "shape", "b64", "x"]), inner)
        ),
        max_leaves=20,
    )
)
def test_any_json_is_data_or_one_message(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    file = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}.json"
    for whole in (value, {"data": value}, {"data": [{"INPUT0": value}]}, {"data": [{"INPUT0": [1, 2]}], "x": value}):
        file.write_text(json.dumps(whole))
        try:
            [stream] = build_streams(InputSettings(source="", paths=(file,)), PAIR)
        except PerfInputError as error:
            assert str(error)
        else:
            assert all(len(step.inputs[0].data) == 8 for step in stream.steps)


# Directories


@pytest.mark.parametrize(
    ("described", "files", "expected"),
    [
        (PAIR, {}, "failed to open file 'folder/INPUT0': there is none, expected the data of the input INPUT0 in it"),
        (PAIR, {"INPUT0": b"1234"}, "provided data for input INPUT0 has byte size 4, expect 8: 'folder/INPUT0'"),
        (TEXTS, {"INPUT0": b"one\n"}, "provided data for input INPUT0 has 1 elements, expect 2: 'folder/INPUT0'"),
        (
            PAIR,
            {"INPUT0": bytes(8), "X": b""},
            "Provided data file 'folder/X' does not correspond to a valid model input or output.: expected INPUT0, "
            "OUTPUT0",
        ),
        (FREE, {"INPUT0": bytes(8)}, 'The variable-sized tensor "INPUT0" with model shape [-1,-1]'),
    ],
)
def test_directories_that_do_not_fit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    described: ModelDescription,
    files: dict[str, bytes],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name, content in files.items():
        Path("folder", name).write_bytes(content)
    assert problem_of(described, "folder").startswith(expected)


def test_a_file_that_is_not_there() -> None:
    assert problem_of(PAIR, "/nowhere/data.json") == (
        "failed to open file for reading provided data: '/nowhere/data.json': No such file or directory"
    )
