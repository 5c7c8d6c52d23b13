"""Data of directories: a file for each tensor."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from naiad.perf.input.build import build_streams
from naiad.perf.input.element_bytes import encode_bytes_elements
from naiad.perf.input.error import PerfInputError
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, Step
from support.perf_models import model, tensor


def step_of(folder: Path, described: ModelDescription, batch_size: int = 1) -> Step:
    """The only step of a directory."""
    settings = InputSettings(source="", paths=(folder,), batch_size=batch_size)
    [stream] = build_streams(settings, described)
    [step] = stream.steps
    return step


def test_a_file_holds_the_bytes_of_one_row(tmp_path: Path) -> None:
    row = struct.pack("<2i", 7, 8)
    (tmp_path / "INPUT0").write_bytes(row)
    step = step_of(tmp_path, model(tensor("INPUT0", "INT32", 2), max_batch_size=4), batch_size=3)
    assert (step.inputs[0].shape, step.inputs[0].data, step.expected) == ((3, 2), row * 3, ())


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        (b"ab\ncd\n", [b"ab", b"cd"]),
        (b"ab\ncd", [b"ab", b"cd"]),
        (b"ab\n\n", [b"ab", b""]),
        (b"\xff\n\x00\n", [b"\xff", b"\x00"]),
    ],
)
def test_a_file_of_strings_has_one_for_each_line(tmp_path: Path, text: bytes, elements: list[bytes]) -> None:
    (tmp_path / "INPUT0").write_bytes(text)
    step = step_of(tmp_path, model(tensor("INPUT0", "BYTES", 2)))
    assert step.inputs[0].data == encode_bytes_elements(elements)


def test_the_size_of_a_file_gives_a_variable_dimension(tmp_path: Path) -> None:
    (tmp_path / "INPUT0").write_bytes(bytes(24))
    assert step_of(tmp_path, model(tensor("INPUT0", "FP32", -1, 2))).inputs[0].shape == (3, 2)


def test_files_of_outputs_are_expected(tmp_path: Path) -> None:
    (tmp_path / "INPUT0").write_bytes(bytes(8))
    (tmp_path / "OUTPUT0").write_bytes(struct.pack("<2i", 1, 2))
    [expected] = step_of(tmp_path, model(tensor("INPUT0", "INT32", 2))).expected
    assert (expected.name, expected.data) == ("OUTPUT0", struct.pack("<2i", 1, 2))


def test_a_name_with_a_slash_lies_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x:0").write_bytes(bytes(4))
    assert step_of(tmp_path, model(tensor("in/x:0", "INT32", 1))).inputs[0].data == bytes(4)


@pytest.mark.parametrize("name", ["../secret", "in/../../secret", "/etc/hostname"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").write_bytes(bytes(4))
    with pytest.raises(PerfInputError, match="has a name that leads out of the directory"):
        step_of(tmp_path / "data", model(tensor(name, "INT32", 1)))


def test_an_optional_input_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "A").write_bytes(bytes(4))
    (tmp_path / ".DS_Store").write_bytes(b"x")
    step = step_of(tmp_path, model(tensor("A", "INT32", 1), tensor("B", "INT32", 1, is_optional=True)))
    assert [value.name for value in step.inputs] == ["A"]
