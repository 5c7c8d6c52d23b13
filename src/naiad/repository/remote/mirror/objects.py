"""The contents of remote files on local disk, each under a name that follows from what it is a copy of.

A content is written to ``partial/`` and moved to ``objects/`` once it is complete and verified. The transfer of a
killed server is resumed: a journal beside the partial file lists the parts that it has. A lock on the partial file
keeps other servers from fetching the same content, and the system releases it when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad.errors import StoreError, StoreUnreachableError
from naiad.repository.remote.mirror.journal import Journal
from naiad.repository.remote.mirror.progress import TransferProgress, shown
from naiad.repository.remote.mirror.transfers import Halt, in_threads
from naiad.repository.remote.stores.store import ObjectChangedError, Store, StoredFile, TruncatedError, object_key

logger = logging.getLogger("naiad")

PART: Final = 8 << 20
"""Bytes of one request."""
READS: Final = 8
"""The parts that are fetched at the same time, of all files together."""
ATTEMPTS: Final = 4
"""The requests for one part before the transfer fails; the store's own library repeats some of them as well."""
_PAUSE_S: Final = 0.2
_LOCK_S: Final = 0.1
_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Objects:
    """The contents below ``root``. Used by loading threads, several at a time, and by several servers.

    Args:
        root: the mirror's folder.
        halt: ends all transfers.
    """

    def __init__(self, root: Path, halt: Halt) -> None:
        self._root = root
        self._halt = halt
        self._reads = threading.BoundedSemaphore(READS)
        self._no_md5: set[str] = set()

    @property
    def folder(self) -> Path:
        """The folder of complete contents."""
        return self._root / "objects"

    @property
    def partial(self) -> Path:
        """The folder of incomplete contents."""
        return self._root / "partial"

    def path(self, key: str) -> Path:
        """The path of the content of that name, whether it exists or not."""
        return self.folder / key[:2] / key

    def has(self, store: Store, entry: StoredFile) -> bool:
        """Whether the content of ``entry`` is here, as it was when it was written."""
        key = object_key(store, entry)
        return is_intact(self.path(key), entry.size, stamp(key))

    def fetch(self, store: Store, entry: StoredFile, progress: TransferProgress, halt: Halt) -> Path:
        """The content of ``entry``, from the store if it is not here.

        Raises:
            ObjectChangedError: the file has changed in the store.
            StoreUnreachableError: the store does not respond.
            StoreError: the store refuses, its content does not match the listing, or the disk is full.
        """
        key = object_key(store, entry)
        final = self.path(key)
        if is_intact(final, entry.size, stamp(key)):
            progress.skip(entry.size)
            return final
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            self.partial.mkdir(parents=True, exist_ok=True)
            with self._locked(self.partial / key, halt) as descriptor:
                if is_intact(final, entry.size, stamp(key)):
                    # Another server was quicker.
                    progress.skip(entry.size)
                    (self.partial / key).unlink(missing_ok=True)
                    return final
                self._complete(store, entry, key, descriptor, progress, halt)
        except OSError as error:
            raise disk_error(error, self._root, f"'{entry.path}' ({shown(entry.size)})") from error
        return final

    @contextmanager
    def _locked(self, path: Path, halt: Halt) -> Iterator[int]:
        """An open file that no other process writes to."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                waits = False
                while not _try_lock(descriptor):
                    if not waits:
                        logger.info("waiting for the server that fetches '%s'", path)
                        waits = True
                    halt.pause(_LOCK_S)
                if _is_at(descriptor, path):
                    yield descriptor
                    return
                # Another process has completed it, and the lock is on a file without this name: look again.
            finally:
                os.close(descriptor)

    def _complete(
        self, store: Store, entry: StoredFile, key: str, descriptor: int, progress: TransferProgress, halt: Halt
    ) -> None:
        # Without ranges the file is one part, so an interrupted transfer begins again.
        part_size = PART if store.has_ranges else max(1, entry.size)
        with Journal(self.partial / f"{key}.journal", f"{entry.size} {part_size}") as journal:
            # A journal may outlive its file: its parts count only for a file of the full size.
            if not journal.done or os.fstat(descriptor).st_size != entry.size:
                journal.restart()
                os.ftruncate(descriptor, 0)
                _reserve(descriptor, entry.size)
            self._fill(store, entry, descriptor, part_size, journal, progress, halt)
            self._verify(store, entry, descriptor, part_size, journal, progress, halt)
            # Before the rename: after a crash of the machine a content under its final name counts as complete.
            os.fsync(descriptor)
            path = self.partial / key
            os.utime(path, ns=(stamp(key), stamp(key)))
            # Large files of models are links to the content: a write to one would change it for all.
            path.chmod(0o444)
            path.rename(self.path(key))
            # Last: without its journal a partial file would be fetched again from the start.
            journal.remove()

    def _fill(
        self,
        store: Store,
        entry: StoredFile,
        descriptor: int,
        part_size: int,
        journal: Journal,
        progress: TransferProgress,
        halt: Halt,
    ) -> None:
        """Write all parts that the journal does not have."""
        starts = range(0, entry.size, part_size)
        progress.skip(sum(min(part_size, entry.size - start) for start in starts if start in journal.done))

        def fetch(start: int, inner: Halt) -> None:
            end = min(start + part_size, entry.size)
            # The threads of all models share this bound, so that many models at once do not open many connections.
            with self._reads:
                _read_part(store, entry, descriptor, start, end, progress, inner)
            journal.add(start)

        in_threads((start for start in starts if start not in journal.done), fetch, READS, halt)

    def _verify(
        self,
        store: Store,
        entry: StoredFile,
        descriptor: int,
        part_size: int,
        journal: Journal,
        progress: TransferProgress,
        halt: Halt,
    ) -> None:
        """Compare with the MD5 sum of the store, where it has one.

        An ETag may look like a sum and be none (encrypted files of S3). A content that is the same when it is fetched
        a second time counts as correct.
        """
        if not entry.md5 or store.identity in self._no_md5:
            return
        found = md5_of(descriptor, halt)
        if found == entry.md5:
            return
        logger.warning(
            "'%s' of %s has the MD5 sum %s, expected %s: it is fetched again",
            entry.path,
            store.identity,
            found,
            entry.md5,
        )
        journal.restart()
        self._fill(store, entry, descriptor, part_size, journal, progress, halt)
        again = md5_of(descriptor, halt)
        if again == entry.md5:
            return
        if again != found:
            journal.restart()
            raise StoreError(
                f"'{entry.path}' of {store.identity} does not arrive whole: two reads have the MD5 sums {found} and "
                f"{again}, expected {entry.md5}"
            )
        # The ETags of this store are no sums: its other files are not fetched twice.
        self._no_md5.add(store.identity)


def _read_part(
    store: Store, entry: StoredFile, descriptor: int, start: int, end: int, progress: TransferProgress, halt: Halt
) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        halt.check()
        try:
            at = start
            for chunk in store.read(entry, start, end):
                if at + len(chunk) > end:
                    raise ObjectChangedError(f"'{entry.path}' of {store.identity} is larger than listed")
                _write(descriptor, chunk, at)
                at += len(chunk)
                if at < end:
                    # Not behind the last piece: a complete part goes to the journal even if another part failed.
                    halt.check()
            if at < end:
                raise TruncatedError(f"{store.identity} sent {at - start} bytes of '{entry.path}', not {end - start}")
            progress.add(end - start)
            return
        except StoreUnreachableError as error:
            if attempt == ATTEMPTS:
                raise
            logger.warning("fetching '%s' again: %s", entry.path, error)
            halt.pause(_PAUSE_S * 4 ** (attempt - 1))


def _write(descriptor: int, chunk: memoryview, at: int) -> None:
    while chunk:
        count = os.pwrite(descriptor, chunk, at)
        chunk = chunk[count:]
        at += count


def _reserve(descriptor: int, size: int) -> None:
    """Take the room now: a disk that is too small should not show after an hour."""
    if size == 0:
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except AttributeError:
        os.ftruncate(descriptor, size)
    except OSError as error:
        # Other errors mean that the file system cannot reserve room: the transfer goes on without.
        if error.errno in _ROOM:
            os.ftruncate(descriptor, 0)
            raise
        os.ftruncate(descriptor, size)


def md5_of(descriptor: int, halt: Halt) -> str:
    """The MD5 sum of an open file."""
    found = hashlib.md5(usedforsecurity=False)
    at = 0
    while chunk := os.pread(descriptor, 1 << 20, at):
        found.update(chunk)
        at += len(chunk)
        halt.check()
    return found.hexdigest()


def stamp(key: str) -> int:
    """The time of modification in ns that a content gets: a file with another time has been written to since.

    It follows from the content's name. Python compares this time with that of its bytecode, so another content is
    compiled again.
    """
    return (1_000_000_000 + int(key[:7], 16)) * 1_000_000_000


def is_intact(path: Path, size: int, stamp_ns: int) -> bool:
    """Whether there is a file of that size and time."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_size == size and found.st_mtime_ns == stamp_ns


def disk_error(error: OSError, root: Path, what: str) -> StoreError:
    """The error when the mirror at ``root`` cannot be written."""
    if error.errno in _ROOM:
        return StoreError(
            f"there is no room for {what} in the mirror '{root}': {error.strerror}; free some, or name a larger place "
            "with --model-repository-mirror"
        )
    return StoreError(f"the mirror '{root}' cannot be used for {what}: {error.strerror or error}")


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)
