"""Temporary folders of models: removed after the last version that was loaded from them, or by a later server."""

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
    """A folder that a model was loaded from and that is released after use. Its methods are for threads only."""

    @property
    def path(self) -> Path:
        """The model's folder."""

    def tried(self, is_loaded: bool) -> None:
        """Release the hold of the load that made it; ``is_loaded`` says whether versions of it serve."""

    def lease(self) -> None:
        """Hold the folder for one more version."""

    def leave(self) -> None:
        """Note that a version is about to be closed."""

    def release(self) -> None:
        """Release the hold of a version that is closed."""


class TemporaryFolder:
    """A folder for the files of one model, which its last user removes.

    Removes files: for threads only.

    Attributes:
        path: the folder, which is still to be made; its name is the model's.
    """

    def __init__(self, model: str) -> None:
        self._root = FolderLease(PREFIX)
        self.path = self._root.path / model
        self._lock = threading.Lock()
        self._holders = 1

    def tried(self, is_loaded: bool) -> None:
        """Release the hold of the load that made it."""
        self.release()

    def leave(self) -> None:
        """Do nothing: no agent is notified."""

    def lease(self) -> None:
        """Count one more user."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Count one user less; the last one removes the folder."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            # Under the lease, so that no other server takes the folder for abandoned meanwhile.
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
    # Several servers may remove the same abandoned folder at once.
    if not isinstance(error, FileNotFoundError):
        logger.warning("the temporary file '%s' could not be removed: %s", path, error)
