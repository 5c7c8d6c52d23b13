"""Snapshots of a model's files: their states, and hashes of their contents."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.config.source import ModelSource
from naiad.repository.changes.fingerprint import walk
from naiad.repository.local.folder_hints import version_number

if TYPE_CHECKING:
    from naiad.repository.remote.repository import Listed, RemoteModel

MAX_READ: Final = 1 << 28
"""Bytes up to which a file is compared by its content. A larger file is compared by its size, times and inode."""
_CHUNK_BYTES: Final = 1 << 20

FileState = tuple[int, int, int, int, int]
"""A file's size in bytes, its times of modification and of change in ns, its device and its inode."""
Content = Mapping[str, bytes | FileState | tuple[int, str]]
"""By path: the hash of a file, its state where it is not read, or the version that a store reports."""

_FOLDER: Final[FileState] = (0, 0, 0, 0, 0)
_NOT_FOLLOWED: Final[FileState] = (-1, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot of a model on this machine: the state of each file and folder by its path."""

    source: ModelSource
    files: Mapping[str, FileState]

    def is_still_as(self, before: Look | ListedLook) -> bool:
        """Whether nothing has changed since the snapshot ``before``.

        Devices and inodes do not count: some network file systems number their files anew now and then.
        """
        if isinstance(before, ListedLook):
            return False
        files, others = self.files, before.files
        return files.keys() == others.keys() and all(state[:3] == others[path][:3] for path, state in files.items())


@dataclass(frozen=True, slots=True)
class ListedLook:
    """A snapshot of a model in a remote repository: the version of each file as its store reports it."""

    source: RemoteModel
    files: Listed

    def is_still_as(self, before: Look | ListedLook) -> bool:
        """Whether nothing has changed since the snapshot ``before``."""
        return self.files == before.files


def look_at(source: ModelSource | RemoteModel) -> Look | ListedLook:
    """The snapshot of ``source`` now, or when its store was read. It reads folders, but no files."""
    if not isinstance(source, ModelSource):
        return ListedLook(source, source.files or {})
    files: dict[str, FileState] = {}
    for path, found, is_folder in walk(source):
        files[path] = _state(found) if found is not None else _FOLDER if is_folder else _NOT_FOLLOWED
    return Look(source, files)


def _state(found: os.stat_result) -> FileState:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino


class FileHashes:
    """The hashes of files, each cached for as long as the file's state is the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[FileState, bytes]] = {}

    def of(self, look: Look | ListedLook) -> Content | None:
        """The contents of the files of ``look``; None when a file has changed since."""
        if isinstance(look, ListedLook):
            return look.files
        content: dict[str, bytes | FileState | tuple[int, str]] = {}
        for path, state in look.files.items():
            if state in (_FOLDER, _NOT_FOLLOWED) or state[0] > MAX_READ:
                content[path] = state
                continue
            known = self._known.get(path)
            if known is None or known[0] != state:
                found = _hash(path, state)
                if found is None:
                    return None
                if isinstance(found, bytes):
                    self._known[path] = state, found
                content[path] = found
            else:
                content[path] = known[1]
        return content

    def keep(self, paths: Collection[str]) -> None:
        """Forget all files except these."""
        for path in self._known.keys() - paths:
            del self._known[path]


def _hash(path: str, state: FileState) -> bytes | FileState | None:
    """The hash of a file, or its state when it cannot be read; None when it is not in this state any more."""
    try:
        # Without O_NONBLOCK the opening of a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return state
    with open(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return state
        found = hashlib.blake2b(digest_size=16)
        # Bounded: a file that grows while it is read must not hold up the look. The last comparison finds the growth.
        left = state[0] + 1
        try:
            while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
                found.update(chunk)
                left -= len(chunk)
        except OSError:
            return state
        return found.digest() if _state(os.fstat(descriptor)) == state else None


def unchanged_versions(before: Content | None, now: Content, source: ModelSource | RemoteModel) -> frozenset[int]:
    """The versions of ``source`` that are as they were in ``before``; none when a file has changed that is not in the
    folder of a version, or when the model lies elsewhere: another listing makes another folder."""
    if before is None or not isinstance(source, ModelSource):
        return frozenset()
    earlier, later = _by_version(before, source), _by_version(now, source)
    if earlier.get(None) != later.get(None):
        return frozenset()
    return frozenset(v for v in source.versions if earlier.get(v) == later.get(v))


def _by_version(content: Content, source: ModelSource) -> Mapping[int | None, Content]:
    """The contents by the version in whose folder they are; None for all other files."""
    parts: dict[int | None, dict[str, bytes | FileState | tuple[int, str]]] = {}
    start = f"{source.directory}{os.sep}"
    for path, found in content.items():
        version = version_number(path[len(start) :].split(os.sep)[0]) if path.startswith(start) else None
        parts.setdefault(version, {})[path] = found
    return parts
