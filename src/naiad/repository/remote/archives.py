"""A zip or tar file behind ``http://`` or ``https://`` that holds a model repository, or one model."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from naiad.errors import StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.local.layout import is_model_directory
from naiad.repository.remote.mirror.mirror import Mirror
from naiad.repository.remote.mirror.views import View
from naiad.repository.remote.repository import RemoteModel, listed
from naiad.repository.remote.stores.store import StoredFile, digest
from naiad.repository.remote.stores.web import UNKNOWN, WebFile
from naiad.repository.remote.unpacking import unpack

logger = logging.getLogger("naiad")

_SUFFIX: Final = re.compile(r"\.(zip|tar|tgz|tbz2|txz|tar\.(gz|bz2|xz))$", re.IGNORECASE)


class ArchiveRepository:
    """The repository in the archive behind ``uri``; it is fetched and unpacked as a whole."""

    def __init__(self, uri: RemoteUri, mirror: Mirror) -> None:
        self.uri = uri
        self._store = WebFile(uri.text)
        self._mirror = mirror
        self._id = f"{uri.scheme}-{digest(self._store.identity)[:24]}"
        self._index = mirror.index(self._id)

    def models(self, is_whole: bool) -> Mapping[str, RemoteModel]:
        return self._models(may_be_old=True)

    def find(self, name: str, may_be_old: bool) -> RemoteModel | None:
        return self._models(may_be_old).get(name)

    def present(self) -> Mapping[str, RemoteModel]:
        """All models by name as they are now; all of them change with the archive."""
        entry = self._entry(may_be_old=False)
        if entry.version.startswith(UNKNOWN):
            raise StoreError(
                f"the server of '{self.uri}' tells neither an ETag nor a time of modification, so nobody can see when "
                "the archive has changed"
            )
        return self._models_of(entry)

    def _models(self, may_be_old: bool) -> Mapping[str, RemoteModel]:
        return self._models_of(self._entry(may_be_old))

    def _models_of(self, entry: StoredFile) -> Mapping[str, RemoteModel]:
        view = self._unpacked(entry)
        try:
            found = {
                name: RemoteModel(
                    name, self.uri, partial(self._fetch, entry, path.relative_to(view.path)), listed([entry])
                )
                for name, path in _model_folders(view.path)
            }
            # Only now: an archive that cannot be unpacked or read is nothing to start from without the store.
            self._index.keep("", [entry])
            return found
        finally:
            # Each model that is fetched holds the folder for itself.
            view.release()

    def _entry(self, may_be_old: bool) -> StoredFile:
        try:
            return self._store.describe()
        except StoreUnreachableError as error:
            known = self._index.entries("")
            if not known or not may_be_old:
                raise
            logger.warning("%s; serving what the mirror '%s' has of it", error, self._mirror.root)
            return known[0]

    def _unpacked(self, entry: StoredFile) -> View:
        name = str(self.uri)

        def work(content: Path, folder: Path) -> None:
            unpack(content, folder, name, self._mirror.halt)

        stem = _SUFFIX.sub("", self._store.name) or "archive"
        return self._mirror.unpacked(self._id, stem, self._store, entry, work, f"the archive {name}")

    def _fetch(self, entry: StoredFile, path: Path) -> View:
        view = self._unpacked(entry)
        return view.below(view.path / path)


def _model_folders(root: Path) -> list[tuple[str, Path]]:
    """Names and folders of the models: of the root itself, of its folders, or of those in its only folder."""
    if is_model_directory(root):
        return [(root.name, root)]
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    # Archives of a folder or of a Git repository have everything in one folder.
    if len(folders) == 1 and not is_model_directory(folders[0]):
        folders = sorted(path for path in folders[0].iterdir() if path.is_dir() and not path.name.startswith("."))
    return [(path.name, path) for path in folders]
