"""Files that are read again: when, and what happens to those that cannot be used."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from naiad.errors import OptionError
from naiad.frontends.net.file_watcher import FileReloader

WAIT_S = 30.0


class Reader:
    """Takes the text of a file over; one that says ``wrong`` cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: list[str] = []
        self.attempts = 0

    def read(self) -> Callable[[], None]:
        self.attempts += 1
        text = self.path.read_text()
        if text == "wrong":
            raise OptionError("the file is wrong")
        return lambda: self.texts.append(text)

    async def until(self, condition: Callable[[Reader], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition(self):
                await asyncio.sleep(0.005)


def put(path: Path, text: str) -> None:
    """Replace the file in one step, as tools for certificates do."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_a_file_is_read_again_once_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    reader = Reader(path)

    async def test() -> None:
        reloader = FileReloader([str(path)], look_s=0.01)
        put(path, "two")  # between the first look and the first reading: not to be missed
        reloader.add("the texts", ["", str(path)], reader.read)
        reloader.start()
        try:
            await reader.until(lambda r: r.texts == ["two"])
            put(path, "wrong")
            await reader.until(lambda r: r.attempts == 2)
            path.unlink()
            put(path, "three")
            await reader.until(lambda r: r.texts == ["two", "three"])
        finally:
            reloader.close()

    asyncio.run(test())
    assert "the texts: those from before stay in use: the file is wrong" in caplog.text


def test_a_file_is_read_again_when_somebody_asks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    reader = Reader(path)

    async def test() -> None:
        reloader = FileReloader([str(path)], look_s=WAIT_S * 10)
        reloader.add("the texts", [str(path)], reader.read)
        reloader.reload()
        reloader.start()
        try:
            await reader.until(lambda r: r.texts == ["one"])
            reloader.reload()
            await reader.until(lambda r: r.texts == ["one", "one"])
        finally:
            reloader.close()

    asyncio.run(test())


def test_nothing_to_watch_needs_no_thread() -> None:
    async def test() -> None:
        reloader = FileReloader([])
        reloader.start()
        assert not reloader.has_files
        reloader.close()

    asyncio.run(test())
