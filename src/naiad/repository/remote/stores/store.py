"""The interface of a store of files for a mirror: listings, and ranges of bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from naiad.errors import StoreError, StoreUnreachableError

MAX_ENTRIES: Final = 1_000_000
"""The most files of one repository; more are more likely the wrong folder."""
_MD5: Final = re.compile(r"[0-9a-f]{32}")


class ObjectChangedError(StoreError):
    """A file has changed or was removed since it was listed."""


class TruncatedError(StoreUnreachableError):
    """The store ended its response early."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a store.

    Attributes:
        path: its place below the root of the repository, parts divided by "/".
        size: in bytes.
        version: its ETag, or its time of modification; a later file of the same name has another one.
    """

    path: str
    size: int
    version: str

    @property
    def md5(self) -> str:
        """Its MD5 sum in hexadecimal, when the version looks like one; else "".

        S3 uses it as the ETag, but not for files of several parts or under some kinds of encryption.
        """
        text = self.version.strip('"').lower()
        return text if _MD5.fullmatch(text) else ""


@dataclass(frozen=True, slots=True)
class Level:
    """The direct contents of one folder of a store: names of ``folders`` and of ``files``."""

    folders: Sequence[str]
    files: Sequence[str]


class Store(Protocol):
    """A store of files. Every method blocks, and may be called from several threads.

    Attributes:
        identity: a text that no other store has, without credentials.
        has_ranges: whether ``read`` can begin anywhere.

    Each method may raise:
        StoreUnreachableError: the store does not respond.
        StoreError: it refuses, or its response makes no sense.
    """

    identity: str
    has_ranges: bool

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        """All files below ``folder``, at any depth; an empty file may stand for a folder."""

    def level(self) -> Level:
        """The contents of the root."""

    def exists(self, entry: StoredFile) -> bool:
        """Whether there is a file of that name, rather than a folder."""

    def read(self, entry: StoredFile, start: int, end: int) -> Iterator[memoryview]:
        """The bytes from ``start`` to ``end`` in pieces.

        Raises:
            ObjectChangedError: the file was removed or has changed since it was listed.
        """


def object_key(store: Store, entry: StoredFile) -> str:
    """The name under which a mirror keeps the content of ``entry``."""
    return digest(f"{store.identity}\n{entry.path}\n{entry.version}\n{entry.size}")


def digest(text: str) -> str:
    """A name for ``text``: the same for the same text, in 64 letters of hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def checked_path(path: str, where: str) -> str:
    """``path`` when it stays below the folder that it is in.

    Raises:
        StoreError: it leads elsewhere, or no file can have that name.
    """
    parts = path.split("/")
    # The limits of Linux, 255 bytes a name and 4096 a path, less room for the mirror's own folders.
    too_long = len(path) > 3000 or any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts)
    if too_long or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"{where} holds '{path[:200]}', which cannot be the path of a local file: rename or remove it")
    return path
