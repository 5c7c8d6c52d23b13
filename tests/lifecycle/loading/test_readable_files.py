"""Model files that may not be read: the error names the file, the user and what to do."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from naiad.errors import ModelLoadError
from naiad.lifecycle.loading.load_version import LoadSettings, start_backend
from naiad.repository.local.layout import scan

NOBODY = 65534


@pytest.fixture
def repository() -> Iterator[Path]:
    """A repository with one model, which every user may read; the test runs as one who is not root."""
    # Not below pytest's folder, which is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="readable-"))
    folder.chmod(0o755)
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "1" / "model.onnx").write_bytes(b"no model, and nobody should get as far as to say so")
    mine = os.geteuid()
    try:
        if mine == 0:
            os.seteuid(NOBODY)
        yield folder
    finally:
        os.seteuid(mine)
        for inner in (folder / "m", folder / "m" / "1"):
            inner.chmod(0o755)
        shutil.rmtree(folder)


@contextmanager
def as_owner() -> Iterator[None]:
    """With the rights of whoever made the repository."""
    user = os.geteuid()
    os.seteuid(os.getuid())
    try:
        yield
    finally:
        os.seteuid(user)


def close(path: Path) -> None:
    """Take all rights of a file or folder away."""
    with as_owner():
        path.chmod(0)


def refusal(repository: Path) -> str:
    """Why the model does not load."""
    source = scan((repository,)).models["m"]
    settings = LoadSettings(lambda backend: {})
    with pytest.raises(ModelLoadError) as caught:
        start_backend(source, 1, settings.finder.candidate(source).read, settings)
    return str(caught.value)


def test_a_closed_file(repository: Path) -> None:
    file = repository / "m" / "1" / "model.onnx"
    close(file)
    said = refusal(repository)
    assert f"model 'm': '{file}' cannot be read as user " in said
    assert f"uid {os.geteuid()}" in said
    assert said.endswith(f": Permission denied; allow it: chmod a+r '{file}'")


def test_a_closed_folder(repository: Path) -> None:
    folder = repository / "m" / "1"
    close(folder)
    said = refusal(repository)
    assert "Permission denied" in said
    assert f"the folder '{folder}' keeps that user out, allow it: chmod a+rx '{folder}'" in said


def test_a_closed_file_of_a_model_that_is_a_folder(repository: Path) -> None:
    file = repository / "m" / "1" / "model.onnx"
    with as_owner():
        file.unlink()
        file.mkdir()
        (file / "weights.bin").write_bytes(b"x")
    close(file / "weights.bin")
    assert f"'{file}/weights.bin' cannot be read as user" in refusal(repository)
