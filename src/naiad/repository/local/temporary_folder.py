"""Folders that live no longer than what was loaded from them, and not for ever when the server is killed either."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path
from typing import Final, Protocol

from naiad.folder_lease import FolderLease, abandoned_folders

logger = logging.getLogger("naiad")

PREFIX: Final = "naiad-model-"


class ModelFolder(Protocol):
    """What a model was loaded from and has to be given back. Its methods are for threads only."""

    @property
    def path(self) -> Path:
        """The model's folder."""

    def tried(self, is_kept: bool) -> None:
        """The load that made it is over and does not hold it any more; ``is_kept``: versions serve that do."""

    def hold(self) -> None:
        """One more version was loaded from it."""

    def leave(self) -> None:
        """One of those versions is about to be closed."""

    def release(self) -> None:
        """One of those versions is closed."""


class TemporaryFolder:
    """A folder for the files of one model. Whoever uses it holds it; the last one to release it removes it.

    Removes files: for threads only.

    Attributes:
        path: the folder, which is still to be made; its name is the model's.
    """

    def __init__(self, model: str) -> None:
        self._root = FolderLease(PREFIX)
        self.path = self._root.path / model
        self._lock = threading.Lock()
        self._holders = 1

    def tried(self, is_kept: bool) -> None:
        """The load that made it does not use it any more."""
        self.release()

    def leave(self) -> None:
        """Nothing is to be done before one that uses it ends."""

    def hold(self) -> None:
        """One more uses it."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """One less uses it."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            _remove(self._root.path)
            self._root.release()


def remove_abandoned() -> None:
    """Remove the folders of servers that were killed."""
    for root in abandoned_folders(PREFIX):
        logger.info("removing %s, which a server that was killed has left", root)
        _remove(root)


def _remove(root: Path) -> None:
    shutil.rmtree(root, onerror=lambda _, path, error: _not_removed(path, error[1]))


def _not_removed(path: str, error: BaseException) -> None:
    if not isinstance(error, FileNotFoundError):
        logger.warning("the temporary file '%s' could not be removed: %s", path, error)
