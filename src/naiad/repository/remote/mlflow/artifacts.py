"""The files that an MLflow server itself serves."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from naiad.errors import StoreError, StoreUnreachableError
from naiad.repository.remote.stores.store import MAX_ENTRIES, Level, StoredFile, checked_path
from naiad.repository.remote.stores.web import UNKNOWN, Web

_MAX_DEPTH: Final = 32


class ArtifactStore:
    """The files that the MLflow server itself serves, from the folder ``root`` on down.

    They never change: each run and each version has a folder of its own.
    """

    has_ranges = False

    def __init__(self, base: str, root: str, web: Web) -> None:
        self.identity = f"{base}/mlflow-artifacts/{root}"
        self._base = base
        self._root = root
        self._web = web

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        found: list[StoredFile] = []
        waiting = [(folder, 0)]
        while waiting:
            place, depth = waiting.pop()
            for item in self._children(place):
                name = checked_path(str(item.get("path", "")).strip("/").rpartition("/")[2], self.identity)
                path = f"{place}/{name}" if place else name
                size = item.get("file_size", "")
                if item.get("is_dir"):
                    waiting.append((path, depth + 1))
                elif re.fullmatch("[0-9]{1,18}", str(size)):
                    found.append(StoredFile(path, int(size), UNKNOWN + "artifact"))
                else:
                    raise StoreError(f"{self.identity} does not say how large '{path}' is")
            # The server decides what it calls a folder: a listing must end all the same.
            if depth > _MAX_DEPTH or len(found) + len(waiting) > MAX_ENTRIES:
                raise StoreError(f"{self.identity} holds too many files or folders")
        return found

    def level(self) -> Level:
        items = self._children("")
        names = [(str(item.get("path", "")).rpartition("/")[2], bool(item.get("is_dir"))) for item in items]
        return Level([name for name, is_dir in names if is_dir], [name for name, is_dir in names if not is_dir])

    def exists(self, entry: StoredFile) -> bool:
        return True

    def read(self, entry: StoredFile, start: int, end: int) -> Iterator[memoryview]:
        path = urllib.parse.quote(f"{self._root}/{entry.path}")
        url = f"{self._base}/api/2.0/mlflow-artifacts/artifacts/{path}"
        return self._web.read(url, entry, start, end, self.has_ranges)

    def _children(self, folder: str) -> Sequence[Mapping[str, Any]]:
        path = f"{self._root}/{folder}".rstrip("/")
        url = f"{self._base}/api/2.0/mlflow-artifacts/artifacts?{urllib.parse.urlencode({'path': path})}"
        items = self._web.json(url, "list").get("files", [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise StoreError(f"{self.identity} answers with something else than a list of files")
        return items


class GoneStore:
    """A store that does not respond, for which the mirror may have a copy."""

    has_ranges = False

    def __init__(self, identity: str, error: StoreUnreachableError) -> None:
        self.identity = identity
        self._error = error

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        raise self._error

    def level(self) -> Level:
        raise self._error

    def exists(self, entry: StoredFile) -> bool:
        raise self._error

    def read(self, entry: StoredFile, start: int, end: int) -> Iterator[memoryview]:
        raise self._error
