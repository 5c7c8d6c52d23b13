"""Files of an analysis are there as a whole, or not at all."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from naiad.analyze.files import write_whole


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_without_room_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "reports" / "report.html"
    with pytest.raises(OSError) as caught, room_for(1000):
        write_whole(file, "x" * 2000)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file))
    assert list(file.parent.iterdir()) == []


def test_a_file_without_room_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_whole(file, "before")
    with pytest.raises(OSError), room_for(1000):
        write_whole(file, b"x" * 2000)
    assert file.read_text() == "before"
    write_whole(file, "after")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("report.html", "after")]
