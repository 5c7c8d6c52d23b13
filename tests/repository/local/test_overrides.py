"""Files that come with a request, written to a folder of their own."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from naiad.errors import InvalidArgumentError, ModelLoadError
from naiad.repository.local.overrides import MAX_FILES, NO_OVERRIDES, Overrides, UnusableFilesError, decode, write_files


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders are made here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_files_lie_in_a_folder_of_the_models_name(place: Path) -> None:
    folder = write_files("m", {"file:1/model.py": b"x", "file:labels.txt": base64.b64encode(b"\0\xff").decode()})
    assert folder.path.name == "m"
    assert (folder.path / "1" / "model.py").read_bytes() == b"x"
    assert (folder.path / "labels.txt").read_bytes() == b"\0\xff"
    folder.lease()
    folder.release()
    assert folder.path.exists()
    folder.release()
    assert list(place.iterdir()) == []


def test_what_a_killed_server_left_is_removed(place: Path) -> None:
    script = """if True:
        import os, signal
        from naiad.repository.local.overrides import write_files
        print(write_files("m", {"file:1/model.py": b"x"}).path, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(place)}, capture_output=True
    )
    left = Path(killed.stdout.decode().strip())
    assert (left / "1" / "model.py").exists()
    other = write_files("other", {"file:1/model.py": b"x"})
    assert not left.exists()
    again = write_files("again", {"file:1/model.py": b"x"})
    assert other.path.exists()
    other.release()
    again.release()
    assert list(place.iterdir()) == []


def test_a_path_may_begin_with_a_slash(place: Path) -> None:
    folder = write_files("m", {"file:/1/model.py": b"x"})
    assert (folder.path / "1" / "model.py").read_bytes() == b"x"
    folder.release()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "file:../x",
        "file:1/../../x",
        "file:/../x",
        "file:///",
        "file:",
        "file:.",
        "1/model.py",
        "file:a\0b",
        "file:..\\x",
    ],
)
def test_paths_that_leave_the_folder_are_refused(place: Path, name: str) -> None:
    with pytest.raises(UnusableFilesError, match="names no file of the model"):
        write_files("m", {"file:1/model.py": b"x", name: b"y"})
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_the_model_must_have_a_name(place: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        write_files(name, {"file:1/model.py": b"x"})
    assert list(place.iterdir()) == []


def test_a_file_where_a_folder_is(place: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be written"):
        write_files("m", {"file:1": b"x", "file:1/model.py": b"y"})
    assert list(place.iterdir()) == []


def test_base64_of_any_length_and_in_lines() -> None:
    for size in (0, 1, 2, 3, 1000, 600_000):
        content = os.urandom(size)
        for encoded in (base64.b64encode(content), base64.encodebytes(content)):
            assert b"".join(decode("f", encoded.decode())) == content
            assert b"".join(decode("f", memoryview(encoded))) == content


@pytest.mark.parametrize("text", ["!!!", "abc", "YQ==YQ==", "ä", "YQ=", "a" * 300_001])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(UnusableFilesError, match="the content of 'f' is not base64"):
        list(decode("f", text))


def test_nothing_overridden_is_false() -> None:
    assert not NO_OVERRIDES
    assert Overrides("")
    assert Overrides(files={"file:x": b""})


def test_too_many_files_are_refused(place: Path) -> None:
    files = {f"file:1/{number}": b"" for number in range(MAX_FILES + 1)}
    with pytest.raises(UnusableFilesError, match=f"brings {MAX_FILES + 1} files, at most {MAX_FILES} are allowed"):
        write_files("m", files)
    assert list(place.iterdir()) == []
