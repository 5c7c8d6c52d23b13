"""Packed environments (conda-pack, venv-pack): unpacked once for the whole server, however many models name one.

The folder that they are unpacked into belongs to one server and goes with it. Folders of servers that were killed are
removed by the next one that unpacks anything: a lock that the system releases with its process tells which those are.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import tarfile
import threading
import weakref
from collections import defaultdict
from functools import cache
from pathlib import Path

from naiad.backends.shared.commands import run_command
from naiad.errors import ModelLoadError
from naiad.folder_lease import FolderLease, abandoned_folders

logger = logging.getLogger("naiad")

_PREFIX = "naiad-environments-"
_UNPACK_S = 1800.0

_Key = tuple[Path, int, int]


class UnpackedEnvironment:
    """A packed environment on disk. ``folder`` stays as long as something refers to this."""

    __slots__ = ("__weakref__", "folder")

    def __init__(self, folder: Path) -> None:
        self.folder = folder


class Archives:
    """The unpacked environments of one server. Used by loading threads, several at a time.

    Args:
        parent: where the server's folder is made; None for the system's folder of temporary files.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._root: FolderLease | None = None
        self._lock = threading.Lock()
        self._busy: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._current: dict[Path, tuple[_Key, UnpackedEnvironment]] = {}
        self._replaced: list[tuple[weakref.ref[UnpackedEnvironment], Path]] = []
        self._count = 0

    def unpack(self, archive: Path) -> UnpackedEnvironment:
        """The environment in ``archive``; unpacked again when the file has changed.

        Raises:
            ModelLoadError: there is no such file, or it cannot be unpacked.
        """
        path = archive.resolve()
        with self._lock:
            busy = self._busy[path]
        # A lock for each archive: unpacking may take minutes, and only models with the same one should wait.
        with busy:
            key = _key(path)
            kept = self._current.get(path)
            if kept is not None and kept[0] == key:
                return kept[1]
            unpacked = UnpackedEnvironment(self._unpack(path))
            with self._lock:
                self._current[path] = key, unpacked
                if kept is not None:
                    self._replaced.append((weakref.ref(kept[1]), kept[1].folder))
        # This name would count as a user of the environment that was replaced.
        del kept
        self._remove_replaced()
        return unpacked

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            root, self._root = self._root, None
            self._current.clear()
            self._replaced.clear()
            if root is not None:
                shutil.rmtree(root.path, ignore_errors=True)
                root.release()

    def _unpack(self, archive: Path) -> Path:
        with self._lock:
            root = self._root = self._root or self._make_root()
            # Numbered: archives may have the same name, and one that has changed is unpacked beside the earlier one.
            self._count += 1
            folder = root.path / f"{self._count}-{archive.name.partition('.')[0]}"
        folder.mkdir()
        # The line of the reference, which people look for in the log.
        logger.info("Extracting Python execution env %s", archive)
        try:
            _extract(archive, folder, root.descriptor)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def _make_root(self) -> FolderLease:
        for abandoned in abandoned_folders(_PREFIX, self._parent):
            logger.info("removing %s, which a server that was killed has left", abandoned)
            shutil.rmtree(abandoned, ignore_errors=True)
        return FolderLease(_PREFIX, self._parent)

    def _remove_replaced(self) -> None:
        """Remove environments that were replaced and are no longer in use."""
        with self._lock:
            gone = [folder for used, folder in self._replaced if used() is None]
            self._replaced = [(used, folder) for used, folder in self._replaced if used() is not None]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)


@cache
def shared_archives() -> Archives:
    """The unpacked environments of this process, which removes them when it ends."""
    archives = Archives()
    atexit.register(archives.close)
    return archives


def _key(path: Path) -> _Key:
    try:
        found = path.stat()
    except OSError as error:
        raise ModelLoadError(f"the environment {path} cannot be read: {error.strerror}") from None
    return path, found.st_mtime_ns, found.st_size


def _extract(archive: Path, folder: Path, lock_fd: int) -> None:
    """Unpack an archive, with ``tar`` if it is installed: that is faster, and leaves the interpreter to requests."""
    what = f"the environment {archive} cannot be unpacked"
    if tar := shutil.which("tar"):
        # The lock stays taken for as long as tar writes, even if the server is killed meanwhile.
        # ``-o``: the files belong to the user of the server, whoever has packed them.
        run_command([tar, "-xof", archive, "-C", folder], what, _UNPACK_S, pass_fds=[lock_fd])
        return
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="tar")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ModelLoadError(f"{what}: {error}") from None
