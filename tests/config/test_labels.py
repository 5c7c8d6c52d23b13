"""Label files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from naiad.config.labels import MAX_LABEL_BYTES, with_labels
from naiad.config.problems import Origin
from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import ConfigError
from naiad.tensor.dtypes import BY_WIRE

ORIGIN = Origin(Path("config.pbtxt"), {"output[1]": 7})


def spec(label_filename: str) -> ModelSpec:
    outputs = {
        name: TensorSpec(name, BY_WIRE["FP32"], (4,), (4,), label_filename=file)
        for name, file in (("A", ""), ("B", label_filename))
    }
    return ModelSpec("m", "", "identity", 0, {}, outputs, ())


def test_each_line_is_a_label(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "labels.txt").write_bytes("cat\r\n\nHündin\nfish".encode())
    found = with_labels(spec("sub/labels.txt"), tmp_path, ORIGIN)
    assert found.outputs["B"].labels == (b"cat", b"", "Hündin".encode(), b"fish")
    assert found.outputs["A"].labels == ()


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    given = spec("")
    assert with_labels(given, tmp_path, ORIGIN) is given


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unable to read label file 'nope' in .*: No such file") as raised:
        with_labels(spec("nope"), tmp_path, ORIGIN)
    assert raised.value.line == 7


@pytest.mark.parametrize("way", ["../secret", "link"])
def test_files_outside_of_the_folder_are_refused(tmp_path: Path, way: str) -> None:
    (tmp_path / "secret").write_text("a secret")
    folder = tmp_path / "m"
    folder.mkdir()
    os.symlink("../secret", folder / "link")
    with pytest.raises(ConfigError, match=f"label file '{way}' lies outside the model's folder"):
        with_labels(spec(way), folder, ORIGIN)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="label file 'pipe' is a pipe or a device, expected a plain file"):
        with_labels(spec("pipe"), tmp_path, ORIGIN)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_LABEL_BYTES + 1)
    with pytest.raises(ConfigError, match=f"is {MAX_LABEL_BYTES + 1} bytes large, expected at most {MAX_LABEL_BYTES}"):
        with_labels(spec("large"), tmp_path, ORIGIN)
