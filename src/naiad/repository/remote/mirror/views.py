"""Folders of models made of the contents of a mirror.

A folder is complete from the moment it has its name, and stays as it is: another listing of the store makes another
folder. So a model that serves keeps its files while it is replaced.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from naiad.repository.remote.mirror.locking import FolderLock, Users
from naiad.repository.remote.mirror.objects import is_intact, stamp

logger = logging.getLogger("naiad")

MANIFEST: Final = "manifest.json"
BUILDING: Final = ".new-"
"""The prefix of the name of a folder that is not complete yet."""
LINKED: Final = 1 << 20
"""Files from this size on are links to the mirror's contents, smaller ones are copies."""
_MAX_COPIES: Final = 1000


class View:
    """A folder that stays while it is held. The caller who gets it holds it once.

    ``lease`` touches no file, so it may be called on the event loop.

    Attributes:
        path: the folder; its name is the model's.
    """

    def __init__(self, path: Path, name: str, lock: FolderLock, users: Users) -> None:
        self.path = path
        self._name = name
        self._folder_lock = lock
        self._users = users
        self._holders = 1
        self._holders_lock = threading.Lock()

    def below(self, path: Path) -> View:
        """The same view with a folder in it as its path. Release one of the two, not both."""
        return View(path, self._name, self._folder_lock, self._users)

    def tried(self, is_loaded: bool) -> None:
        """Release the hold of the load that obtained it."""
        self.release()

    def leave(self) -> None:
        """Do nothing: no agent is notified."""

    def lease(self) -> None:
        """Count one more user."""
        with self._holders_lock:
            self._holders += 1

    def release(self) -> None:
        """Count one user less; the last one allows the folder to be removed."""
        with self._holders_lock:
            self._holders -= 1
            is_last = self._holders == 0
        if not is_last:
            return
        try:
            with self._folder_lock.shared():
                self._users.remove(self._name)
        except OSError as error:
            # It stays until this process ends.
            logger.warning("the mirror's folder '%s' cannot be given back: %s", self.path, error)


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One file of a view: the content's name ``key``, where it lies, and its size."""

    key: str
    content: Path
    size: int


class Views:
    """The folders below ``root``. The caller holds the mirror's lock."""

    def __init__(self, root: Path, lock: FolderLock, users: Users) -> None:
        self.root = root
        self._lock = lock
        self._users = users

    def find(self, repository: str, tree: str, model: str) -> View | None:
        """The folder of that listing, held, if it exists and nobody has written to its files."""
        for name in self._names(repository, tree):
            place = self.root / name
            manifest = read_manifest(place)
            if manifest is None:
                # The names are used in their order, so none follows.
                return None
            if _is_whole(place / model, manifest):
                return self._held(name, model)
        return None

    def build(
        self,
        repository: str,
        tree: str,
        model: str,
        files: Mapping[str, ViewFile],
        folders: Collection[str],
        extra: Mapping[str, str],
    ) -> View:
        """Make the folder of that listing and hold it; ``extra`` are more files, as texts.

        Raises:
            OSError: it cannot be written.
        """
        building = self.root / repository / f"{BUILDING}{uuid.uuid4().hex}"
        try:
            target = building / model
            target.mkdir(parents=True)
            for folder in folders:
                (target / folder).mkdir(parents=True, exist_ok=True)
            for path, file in files.items():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                _place(file, target / path)
            for path, text in extra.items():
                (target / path).write_text(text, encoding="utf-8")
            manifest = {"model": model, "files": {path: [file.key, file.size] for path, file in files.items()}}
            (building / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            return self._held(self._publish(building, repository, tree), model)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def adopt(self, repository: str, tree: str, building: Path, model: str) -> None:
        """Rename a folder that was filled under another name; it has no manifest of contents."""
        (building / MANIFEST).write_text(json.dumps({"model": model, "files": {}}), encoding="utf-8")
        self._publish(building, repository, tree)

    def all(self) -> Iterator[str]:
        """The names of all complete folders."""
        for path in self.root.glob(f"*/*/{MANIFEST}"):
            if not path.parent.name.startswith(BUILDING):
                yield str(path.parent.relative_to(self.root))

    def _names(self, repository: str, tree: str) -> Iterator[str]:
        """The names that the folder may have. The next is used when somebody wrote to a folder that may be in use."""
        yield f"{repository}/{tree}"
        yield from (f"{repository}/{tree}-{number}" for number in range(1, _MAX_COPIES))

    def _publish(self, building: Path, repository: str, tree: str) -> str:
        for name in self._names(repository, tree):
            try:
                # In one step, so that no server sees half a folder.
                building.rename(self.root / name)
            except OSError:
                # A folder of that name exists: a rename only replaces an empty one.
                if not (self.root / name).exists():
                    raise
                continue
            return name
        raise OSError(f"there are too many folders '{self.root / repository / tree}'")

    def _held(self, name: str, model: str) -> View:
        # The time of the last use, by which the sweep chooses.
        os.utime(self.root / name / MANIFEST)
        # While the caller still holds the mirror's lock: no sweep comes between.
        self._users.add(name)
        return View(self.root / name / model, name, self._lock, self._users)


def read_manifest(place: Path) -> dict[str, Any] | None:
    """The manifest of a complete folder; None when there is no such folder."""
    try:
        found = json.loads((place / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("files"), dict) else None


def _is_whole(folder: Path, manifest: Mapping[str, Any]) -> bool:
    return folder.is_dir() and all(
        is_intact(folder / path, size, stamp(key)) for path, (key, size) in manifest["files"].items()
    )


def _place(file: ViewFile, target: Path) -> None:
    """Link or copy a content. A link needs no room, but a write to it changes the content; people edit small files."""
    if file.size >= LINKED:
        try:
            os.link(file.content, target)
            return
        except OSError:
            # Not every file system has links.
            pass
    shutil.copyfile(file.content, target)
    # A link has the content's time; a copy gets it, since the time shows whether somebody wrote to the file.
    os.utime(target, ns=(stamp(file.key), stamp(file.key)))
