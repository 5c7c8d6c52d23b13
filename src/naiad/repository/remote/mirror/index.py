"""The last listing of a remote repository, with which a server can start while the store does not respond."""

from __future__ import annotations

import json
import logging
import os
import urllib.parse
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from naiad.repository.remote.stores.store import StoredFile, digest

logger = logging.getLogger("naiad")

_LONG = 200


class Index:
    """The listings of one repository below ``folder``. A file that cannot be read counts as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep_names(self, names: Iterable[str]) -> None:
        """Remember the names of all models."""
        _write(self._folder / "names.json", sorted(names))

    def names(self) -> frozenset[str] | None:
        """The names of the last listing; None when there was none."""
        found = _read(self._folder / "names.json")
        return frozenset(map(str, found)) if isinstance(found, list) else None

    def keep(self, model: str, entries: Iterable[StoredFile]) -> None:
        """Remember the files of a model; all of them are in the mirror."""
        _write(self._of(model), [[entry.path, entry.size, entry.version] for entry in entries])

    def entries(self, model: str) -> Sequence[StoredFile] | None:
        """The files of a model when it was mirrored last; None when it never was."""
        found = _read(self._of(model))
        try:
            return None if found is None else [StoredFile(str(path), int(size), str(v)) for path, size, v in found]
        except (TypeError, ValueError):
            return None

    def _of(self, model: str) -> Path:
        # A quoted name may be too long for the name of a file.
        name = urllib.parse.quote(model, safe="", errors="surrogatepass")
        return self._folder / "models" / f"{name if len(name) < _LONG else digest(name)}.json"


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _write(path: Path, content: object) -> None:
    """Write the file in one step. An error here does not keep a model from serving."""
    fresh = path.with_name(f".{uuid.uuid4().hex}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(json.dumps(content), encoding="utf-8")
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("'%s' cannot be written, so a start without the store may fail: %s", path, error.strerror)
