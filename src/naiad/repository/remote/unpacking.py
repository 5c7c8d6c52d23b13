"""Unpacks downloaded archives: only plain files and folders, inside the folder, up to a size."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

from naiad.errors import StoreError
from naiad.repository.remote.mirror.progress import shown
from naiad.repository.remote.mirror.transfers import Halt
from naiad.repository.remote.stores.store import checked_path

MAX_MEMBERS: Final = 100_000
"""The most files and folders of an archive."""
MAX_GROWTH: Final = 200
"""The growth of an archive that may be unpacked, for more than ``FREE_GROWTH`` bytes; models hardly shrink at all."""
FREE_GROWTH: Final = 1 << 30
_CHUNK_BYTES: Final = 1 << 20
_MAX_HEADER: Final = 4 << 20
_COMPRESSED: Final[Mapping[bytes, Callable[[Path], Any]]] = {
    b"\x1f\x8b": partial(gzip.open, mode="rb"),
    b"BZh": partial(bz2.open, mode="rb"),
    b"\xfd7zXZ\x00": partial(lzma.open, mode="rb"),
}
_BROKEN: Final = (
    *(zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError),
    *(RuntimeError, NotImplementedError, ValueError),
)

_Member = tuple[str, bool, int, IO[bytes] | None]


def unpack(archive: Path, folder: Path, name: str, halt: Halt) -> None:
    """Unpack a zip or tar file (plain, gzip, bzip2 or xz) into the empty ``folder``; ``name`` is for messages.

    Raises:
        StoreError: the archive is of another kind, is damaged, too large, or holds links, devices or outer paths.
        OSError: the folder cannot be written.
    """
    limit = max(FREE_GROWTH, MAX_GROWTH * archive.stat().st_size)
    members = _zip(archive, name) if zipfile.is_zipfile(archive) else _tar(archive, name)
    left = limit
    try:
        for count, (path, is_folder, mode, content) in enumerate(members, 1):
            halt.check()
            if count > MAX_MEMBERS:
                raise StoreError(f"the archive '{name}' holds more than {MAX_MEMBERS} files")
            target = folder / path
            if is_folder:
                target.mkdir(parents=True, exist_ok=True)
            elif content is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                # Counted by what is written: the sizes in the headers are their author's choice.
                left -= _write(content, target, 0o755 if mode & 0o100 else 0o644, left, halt)
                if left < 0:
                    raise StoreError(
                        f"the archive '{name}' unpacks to more than {shown(limit)}, which is no archive of models"
                    )
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise StoreError(f"the archive '{name}' holds '{error.filename}' twice, or as a file and as a folder") from None
    except _BROKEN as error:
        raise StoreError(
            f"the archive '{name}' is damaged or of an unknown kind: {error or type(error).__name__}"
        ) from error


def _zip(archive: Path, name: str) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            # The upper half is the Unix mode; archives of other systems have 0 there.
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _no_plain_file(name, info.filename)
            if info.is_dir():
                yield _inside(info.filename, name), True, mode, None
            else:
                with packed.open(info) as content:
                    yield _inside(info.filename, name), False, mode, content


def _tar(archive: Path, name: str) -> Iterator[_Member]:
    with (
        _decompressed(archive) as stream,
        tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream)), mode="r:") as packed,
    ):
        for info in packed:
            if info.isdir():
                # "./" is the folder itself.
                if info.name.strip("./"):
                    yield _inside(info.name, name), True, info.mode, None
            elif info.isreg() and not info.issparse():
                content = packed.extractfile(info)
                if content is not None:
                    with closing(content):
                        yield _inside(info.name, name), False, info.mode, content
            else:
                raise _no_plain_file(name, info.name)


class _Bounded:
    """A file that returns no large piece at a time: the author of a tar file chooses the size of its headers."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise tarfile.ReadError(f"it holds a header of more than {shown(_MAX_HEADER)}")
        return self._file.read(size)


def _bounded(file: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", _Bounded(file))


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        head = file.read(6)
    for magic, opener in _COMPRESSED.items():
        if head.startswith(magic):
            opened: IO[bytes] = opener(archive)
            return opened
    return archive.open("rb")


def _inside(path: str, name: str) -> str:
    return checked_path(path.removeprefix("./").removesuffix("/"), f"the archive '{name}'")


def _no_plain_file(name: str, path: str) -> StoreError:
    return StoreError(
        f"the archive '{name}' holds '{path[:200]}', which is a link, a device or the like: only plain files and "
        "folders are unpacked"
    )


def _write(content: IO[bytes], target: Path, mode: int, limit: int, halt: Halt) -> int:
    """Write a new file, at most a little more than ``limit`` bytes; returns how many."""
    written = 0
    # O_EXCL: an archive with one name twice is refused.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        while written <= limit and (chunk := content.read(_CHUNK_BYTES)):
            file.write(chunk)
            written += len(chunk)
            halt.check()
    return written
