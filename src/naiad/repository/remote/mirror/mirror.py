"""A local copy of models of remote repositories, shared by all servers that name the same folder."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from naiad.errors import OptionError, StoreError
from naiad.repository.remote.mirror.index import Index
from naiad.repository.remote.mirror.locking import FolderLock, Users
from naiad.repository.remote.mirror.objects import Objects, disk_error
from naiad.repository.remote.mirror.progress import TransferProgress, shown
from naiad.repository.remote.mirror.sweep import sweep
from naiad.repository.remote.mirror.transfers import Halt, in_threads
from naiad.repository.remote.mirror.views import BUILDING, View, ViewFile, Views
from naiad.repository.remote.stores.store import Store, StoredFile, digest, object_key

logger = logging.getLogger("naiad")

MARK: Final = "naiad-mirror.json"
"""The file that marks a folder as a mirror."""
_FORMAT: Final = {"format": 1}
_FOLDERS: Final = ("objects", "partial", "users", "views", "index")
_FRESH: Final = ".naiad-mirror-"
FILES: Final = 8
"""The files of one model that are fetched at the same time."""
_SWEEPS: Final = 32
"""A mirror is swept when as much has come as this part of its limit."""
_SPARE: Final = 16 << 20


class Mirror:
    """The mirror in the folder ``root``. Its methods read and write files and send requests: for threads only.

    Args:
        root: the folder; ``open`` makes it.
        limit: the most bytes that it may hold; 0 for any number.

    Attributes:
        halt: once set, every transfer ends.
    """

    def __init__(self, root: Path, limit: int = 0) -> None:
        self.root = root
        self.halt = Halt()
        self._limit = limit
        # A sweep looks at every file, so it waits until enough has come. What earlier servers left is unknown, so the
        # first transfer sweeps.
        self._unswept = limit
        self._lock = FolderLock(root / "lock")
        self._users = Users(root / "users")
        self.objects = Objects(root, self.halt)
        self._views = Views(root / "views", self._lock, self._users)

    def open(self) -> None:
        """Make the folder, or check that it is a mirror.

        Raises:
            OptionError: it cannot be written, or holds something else.
        """
        try:
            # Models may be confidential: the folder is for this user alone.
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark = self.root / MARK
            if not mark.exists():
                if any(not _is_own(path.name) for path in self.root.iterdir()):
                    raise OptionError(
                        f"the folder '{self.root}' for the mirror of remote repositories holds other things, expected "
                        "an empty folder or an earlier mirror: name another with --model-repository-mirror"
                    )
                # In one step: another server may do the same at this moment, and must not read half a mark.
                fresh = self.root / f"{_FRESH}{uuid.uuid4().hex}"
                fresh.write_text(json.dumps(_FORMAT), encoding="utf-8")
                fresh.replace(mark)
            elif json.loads(mark.read_bytes()) != _FORMAT:
                raise OptionError(f"'{mark}' is of another version of naiad: name another --model-repository-mirror")
            for name in _FOLDERS:
                (self.root / name).mkdir(exist_ok=True)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OptionError(
                f"the mirror '{self.root}' cannot be used: {reason}; name another with --model-repository-mirror"
            ) from None

    def close(self) -> None:
        """End every transfer; folders in use may be removed from now on."""
        self.halt.set()
        self._users.close()

    def index(self, repository: str) -> Index:
        """The last listing of a repository."""
        return Index(self.root / "index" / repository)

    def view(
        self,
        repository: str,
        model: str,
        store: Store,
        files: Mapping[str, StoredFile],
        what: str,
        extra: Mapping[str, str] | None = None,
    ) -> View:
        """A folder called ``model`` with ``files`` by their paths in it. The caller holds it, and releases it.

        An empty entry may turn out to be a folder. ``extra`` are further small files, as texts; ``what`` is the name of
        the transfer in the log.

        Raises:
            ObjectChangedError: a file has changed since it was listed: list again.
            StoreUnreachableError: the store does not respond, and the mirror lacks a file.
            StoreError: the store refuses, or the disk is full.
        """
        tree = tree_of(store, files, extra)
        # Before the shared lock: a sweep needs the lock alone.
        self._make_room(store, files, what)
        try:
            with self._lock.shared(self.halt):
                found = self._views.find(repository, tree, model)
                if found is not None:
                    return found
                progress = TransferProgress(what, sum(entry.size for entry in files.values()))
                contents, folders = self._fetch(store, files, progress)
                view = self._views.build(repository, tree, model, contents, folders, extra or {})
                progress.finish()
        except OSError as error:
            raise disk_error(error, self.root, what) from error
        # Outside the shared lock, since a sweep needs it alone; the new folder is in use by now.
        self._sweep_if_due(progress.fetched)
        return view

    def unpacked(
        self,
        repository: str,
        name: str,
        store: Store,
        entry: StoredFile,
        unpack: Callable[[Path, Path], None],
        what: str,
    ) -> View:
        """A folder called ``name`` that ``unpack`` fills from the content of ``entry``; both are given as paths.

        Raises:
            StoreError: the archive cannot be fetched (see ``view``) or unpacked.
        """
        tree = object_key(store, entry)[:32]
        self._make_room(store, {entry.path: entry}, what)
        try:
            with self._lock.shared(self.halt):
                found = self._views.find(repository, tree, name)
                if found is not None:
                    return found
                progress = TransferProgress(what, entry.size)
                content = self.objects.fetch(store, entry, progress, self.halt)
                progress.finish()
                building = self._views.root / repository / f"{BUILDING}{uuid.uuid4().hex}"
                (building / name).mkdir(parents=True)
                try:
                    unpack(content, building / name)
                    self._views.adopt(repository, tree, building, name)
                finally:
                    # After ``adopt`` there is nothing left under this name, unless the folder could not be published.
                    shutil.rmtree(building, ignore_errors=True)
                view = self._views.find(repository, tree, name)
        except OSError as error:
            raise disk_error(error, self.root, what) from error
        if view is None:
            raise StoreError(f"the mirror '{self.root}' has lost {what} while it was unpacked: try again")
        self._sweep_if_due(entry.size)
        return view

    def _sweep_if_due(self, fetched: int) -> None:
        self._unswept += fetched
        if self._limit and self._unswept > self._limit // _SWEEPS:
            self.sweep()

    def sweep(self, room: int = 0) -> None:
        """Remove contents over the limit, or ``room`` bytes more, while no other process works in the mirror."""
        if not self._limit and not room:
            return
        try:
            with self._lock.exclusive() as is_alone:
                if is_alone:
                    self._unswept = 0
                    sweep(self.objects, self._views, self._users.taken(), self._limit or 1 << 62, room)
        except OSError as error:
            logger.warning("the mirror '%s' cannot be swept: %s", self.root, error)

    def _make_room(self, store: Store, files: Mapping[str, StoredFile], what: str) -> None:
        wanted = sum(entry.size for entry in files.values() if not self.objects.has(store, entry))
        # Small files exist twice, as content and as copy.
        needed = wanted + (_SPARE if wanted else 0)
        if not wanted or needed <= self._free():
            return
        self.sweep(needed - self._free())
        if wanted > self._free():
            raise StoreError(
                f"{what} needs {shown(wanted)} more in the mirror '{self.root}', where {shown(self._free())} are free: "
                "free some, or name a larger place with --model-repository-mirror"
            )

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self.root).free
        except OSError:
            # Unknown room is no reason to refuse; a full disk is an error of its own later.
            return 1 << 62

    def _fetch(
        self, store: Store, files: Mapping[str, StoredFile], progress: TransferProgress
    ) -> tuple[dict[str, ViewFile], Collection[str]]:
        contents: dict[str, ViewFile] = {}
        folders: list[str] = []

        def fetch(job: tuple[str, StoredFile], halt: Halt) -> None:
            path, entry = job
            # For empty entries alone: the question is one more request to the store.
            if entry.size == 0 and not self.objects.has(store, entry) and not store.exists(entry):
                folders.append(path)
                return
            key = object_key(store, entry)
            content = self.objects.fetch(store, entry, progress, halt)
            contents[path] = ViewFile(key, content, entry.size)

        # The largest first, so that no thread is left alone with one at the end.
        by_size = sorted(files.items(), key=lambda item: -item[1].size)
        in_threads(by_size, fetch, FILES, self.halt)
        return contents, folders


def _is_own(name: str) -> bool:
    """Whether a mirror that another server is making may hold such a name; the root of a disk has lost+found."""
    return name in (*_FOLDERS, "lock", "lost+found", MARK) or name.startswith(_FRESH)


def tree_of(store: Store, files: Mapping[str, StoredFile], extra: Mapping[str, str] | None = None) -> str:
    """The name of a listing: the same for the same files with the same contents."""
    lines = [f"{path}\n{object_key(store, entry)}" for path, entry in sorted(files.items())]
    lines += [f"{path}\n{text}" for path, text in sorted((extra or {}).items())]
    return digest("\n".join(lines))[:32]


def leaves(entries: Sequence[StoredFile], where: str) -> dict[str, StoredFile]:
    """``entries`` by path, without those that only stand for folders of others.

    Raises:
        StoreError: something is both a file and a folder.
    """
    parents = {entry.path[:at] for entry in entries for at in _slashes(entry.path)}
    found: dict[str, StoredFile] = {}
    for entry in entries:
        if entry.path not in parents:
            found[entry.path] = entry
        elif entry.size:
            raise StoreError(f"'{entry.path}' of {where} is both a file and a folder: rename one of them")
    return found


def _slashes(path: str) -> Sequence[int]:
    return [at for at, letter in enumerate(path) if letter == "/"]
