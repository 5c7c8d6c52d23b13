"""The checksum agent on real files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from naiad.errors import InvalidArgumentError, ModelLoadError, NaiadError
from naiad.repository.agents.call import Action, AgentCall
from naiad.repository.agents.checksum import ChecksumAgent

CONTENT = b"some weights"
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(CONTENT)
    (tmp_path / "secret").write_bytes(CONTENT)
    return tmp_path / "m"


def ask(folder: Path, parameters: dict[str, str], action: Action = Action.LOAD) -> None:
    ChecksumAgent().act(AgentCall(action, "m", folder, parameters, lambda: folder))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"MD5:1/model.onnx": MD5},
        {"MD5:1/model.onnx": MD5.upper()},
        {"SHA256:1/model.onnx": SHA256 + "\n"},
        {"MD5:1/model.onnx": MD5, "SHA256:./1/model.onnx": SHA256},
    ],
)
def test_files_that_are_as_expected(folder: Path, parameters: dict[str, str]) -> None:
    ask(folder, parameters)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        (
            {"MD5:1/model.onnx": "0" * 32},
            ModelLoadError,
            f"Mismatched MD5 hash for file 1/model.onnx, expect: {'0' * 32}, got: {MD5}",
        ),
        ({"SHA256:1/model.onnx": MD5}, ModelLoadError, f"Mismatched SHA256 hash for file 1/model.onnx, expect: {MD5}"),
        ({"MD5:1/model.onnx": ""}, ModelLoadError, "expect: , got: "),
        ({"SHA1:1/model.onnx": MD5}, InvalidArgumentError, "Unsupported checksum algorithm: SHA1"),
        ({"1/model.onnx": MD5}, InvalidArgumentError, "Unsupported checksum algorithm: 1/model.onnx"),
        ({"": MD5}, InvalidArgumentError, "Unsupported checksum algorithm: "),
        ({"MD5:": MD5}, InvalidArgumentError, "names no file of the model"),
        ({"MD5:.": MD5}, InvalidArgumentError, "names no file of the model"),
        ({"MD5:../secret": MD5}, InvalidArgumentError, "names no file of the model"),
        ({"MD5:1/../../secret": MD5}, InvalidArgumentError, "names no file of the model"),
        ({"MD5:/etc/passwd": MD5}, InvalidArgumentError, "names no file of the model"),
        ({"MD5:1/\0": MD5}, InvalidArgumentError, "names no file of the model"),
        ({"MD5:2/model.onnx": MD5}, ModelLoadError, "cannot compute the checksum of '2/model.onnx': No such file"),
        ({"MD5:1": MD5}, ModelLoadError, "cannot compute the checksum of '1': "),
        ({"MD5:" + "x" * 5000: MD5}, ModelLoadError, "cannot compute the checksum of "),
    ],
)
def test_what_is_refused(folder: Path, parameters: dict[str, str], error: type[NaiadError], text: str) -> None:
    with pytest.raises(error) as caught:
        ask(folder, parameters)
    assert text in str(caught.value)


def test_a_pipe_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "1" / "pipe")
    with pytest.raises(ModelLoadError, match="no plain file"):
        ask(folder, {"MD5:1/pipe": MD5})


@pytest.mark.parametrize("action", [action for action in Action if action is not Action.LOAD])
def test_nothing_is_checked_at_other_times(folder: Path, action: Action) -> None:
    ask(folder, {"MD5:1/model.onnx": "wrong"}, action)
