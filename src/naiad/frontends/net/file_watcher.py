"""Files that are read again while the server runs, when they change or on request: API keys and certificates.

A thread checks and reads them. Their new content takes effect on the loop in one step; files that cannot be used change
nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from naiad.errors import NaiadError

logger = logging.getLogger("naiad")

LOOK_S: Final = 5.0
"""The time between two checks of the files."""

Mark = tuple[object, ...]
Apply = Callable[[], object]


@dataclass(slots=True)
class _Files:
    """Files that are used together, and their marks at the time when they were read."""

    what: str
    paths: tuple[str, ...]
    read: Callable[[], Apply]
    mark: Mark


class FileReloader:
    """Watches files for as long as the server runs. Used on the event loop.

    Args:
        paths: the files that ``add`` may name, before they are read for the first time.
        look_s: the time between two checks, in seconds.
    """

    def __init__(self, paths: Iterable[str], look_s: float = LOOK_S) -> None:
        # Taken before the files are read for the first time: the first check finds a change since then.
        self._marks = {path: _look(path) for path in paths}
        self._look_s = look_s
        self._files: list[_Files] = []
        self._thread: threading.Thread | None = None
        self._wakes = threading.Event()
        self._is_requested = False
        self._is_closed = False

    def add(self, what: str, paths: Iterable[str], read: Callable[[], Apply]) -> None:
        """Watch these files too; called before ``start``.

        Args:
            what: a description of their content, for the log.
            paths: their paths; "" for none.
            read: reads and checks them, in the thread. It returns the function that puts them to use, which the loop
                calls, and raises a ``NaiadError`` when they cannot be used.
        """
        named = tuple(filter(None, paths))
        self._files.append(_Files(what, named, read, tuple(self._marks[path] for path in named)))

    @property
    def has_files(self) -> bool:
        """Whether there is anything to watch."""
        return bool(self._marks)

    def start(self) -> None:
        """Begin to watch."""
        if self._files:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=[loop], name="naiad-files", daemon=True)
            self._thread.start()

    def reload(self) -> None:
        """Read all files again, whether they have changed or not."""
        self._is_requested = True
        self._wakes.set()

    def close(self) -> None:
        """Stop; a file that is being read takes no effect any more."""
        self._is_closed = True
        self._wakes.set()

    # In the thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            self._wakes.wait(self._look_s)
            if self._is_closed:
                return
            # Cleared before the flag is read: a call of ``reload`` in between is seen now or in the next round.
            self._wakes.clear()
            is_requested, self._is_requested = self._is_requested, False
            for files in self._files:
                mark = tuple(map(_look, files.paths))
                if is_requested or mark != files.mark:
                    # Set before the reading: a change meanwhile is found by the next check, and a broken file is
                    # reported once.
                    files.mark = mark
                    self._read(files, loop)

    def _read(self, files: _Files, loop: asyncio.AbstractEventLoop) -> None:
        try:
            apply = files.read()
        except NaiadError as error:
            logger.error("%s: those from before stay in use: %s", files.what, error)
        except Exception:
            logger.exception("%s: those from before stay in use", files.what)
        else:
            try:
                loop.call_soon_threadsafe(partial(self._apply, files.what, apply))
            except RuntimeError:
                # The loop is closed, and with it the server.
                return

    # On the loop

    def _apply(self, what: str, apply: Apply) -> None:
        # ``close`` may have been called since the thread scheduled this.
        if not self._is_closed:
            apply()
            logger.info("%s were read again", what)


def _look(path: str) -> object:
    """The identity, size and times of a file, without reading it; None for a file that does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
