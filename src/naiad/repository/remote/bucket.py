"""A model repository in a bucket: one folder per model, as on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from naiad.config.read import ConfigFormat
from naiad.errors import StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.remote.mirror.mirror import Mirror, leaves
from naiad.repository.remote.mirror.views import View
from naiad.repository.remote.repository import RemoteModel, listed
from naiad.repository.remote.stores.store import Level, ObjectChangedError, Store, StoredFile, digest

logger = logging.getLogger("naiad")

LISTINGS: Final = 3
"""The most listings of a model whose files change while they are fetched."""


class BucketRepository:
    """The repository behind an address of a cloud store.

    Args:
        uri: the address.
        store: the store behind the address.
        mirror: holds the copies of models.
        open_above: opens the folder above, when the address may lead to one model instead of a repository.
        is_bucket: the address is that of a whole bucket, which may be empty.
    """

    def __init__(
        self,
        uri: RemoteUri,
        store: Store,
        mirror: Mirror,
        open_above: Callable[[], tuple[Store, str]] | None = None,
        is_bucket: bool = False,
    ) -> None:
        self.uri = uri
        self._store = store
        self._mirror = mirror
        self._open_above = open_above
        self._is_bucket = is_bucket
        self._only = ""
        self._follow(store)

    def _follow(self, store: Store) -> None:
        self._store = store
        self._id = self._id_of(store)
        self._index = self._mirror.index(self._id)

    def _id_of(self, store: Store) -> str:
        return f"{self.uri.scheme}-{digest(store.identity)[:24]}"

    def models(self, is_whole: bool) -> Mapping[str, RemoteModel]:
        """All models by name; from the mirror's listing when the store does not respond."""
        try:
            return self._models(is_whole, may_be_old=True)
        except StoreUnreachableError as error:
            return self._remembered(error)

    def present(self) -> Mapping[str, RemoteModel]:
        """All models by name as they are now: two listings, which are one request for each thousand files."""
        return self._models(is_whole=True, may_be_old=False)

    def _models(self, is_whole: bool, may_be_old: bool) -> Mapping[str, RemoteModel]:
        level = self._level()
        if level is None:
            entries = self._store.list(self._only) if is_whole else None
            return {self._only: self._model(self._only, entries, may_be_old)}
        if not level.folders and not level.files and not self._may_be_empty(may_be_old):
            raise StoreError(f"the model repository '{self.uri}' holds nothing: is the path right?")
        found = self._listed() if is_whole else {}
        names = sorted(name for name in level.folders if not name.startswith("."))
        self._index.keep_names(names)
        return {name: self._model(name, found.get(name), may_be_old) for name in names}

    def _may_be_empty(self, may_be_old: bool) -> bool:
        # Object stores have no folders: a wrong path is an empty listing, not an error. A bucket that is not there is
        # one. With an error here, the models stay as they are when polling suddenly finds nothing.
        return self._is_bucket and (may_be_old or not self._index.names())

    def _model(self, name: str, entries: Sequence[StoredFile] | None, may_be_old: bool) -> RemoteModel:
        fetch = partial(self._fetch, name, entries, may_be_old)
        return RemoteModel(name, self.uri, fetch, None if entries is None else listed(entries))

    def find(self, name: str, may_be_old: bool) -> RemoteModel | None:
        if (self._only and name != self._only) or name.startswith("."):
            return None
        try:
            entries = self._store.list(name)
        except StoreUnreachableError as error:
            if may_be_old and self._index.entries(name) is not None:
                return RemoteModel(name, self.uri, partial(self._fetch_old, name, error))
            raise
        # A file of the model's own name stands for a folder at most: alone it is no model.
        if not any(entry.path.startswith(f"{name}/") for entry in entries):
            return None
        return self._model(name, entries, may_be_old)

    def _level(self) -> Level | None:
        """The contents of the root; None when the address is one model."""
        if self._only:
            return None
        level = self._store.level()
        if self._open_above is None or not _is_model(level):
            return level
        store, self._only = self._open_above()
        self._follow(store)
        self._open_above = None
        return None

    def _listed(self) -> Mapping[str, Sequence[StoredFile]]:
        found: dict[str, list[StoredFile]] = {}
        for entry in self._store.list():
            name, mark, _ = entry.path.partition("/")
            # An empty file of the model's own name stands for its folder.
            if mark or entry.size == 0:
                found.setdefault(name, []).append(entry)
        return found

    def _remembered(self, error: StoreUnreachableError) -> Mapping[str, RemoteModel]:
        names = self._index.names() or self._remembered_alone()
        if names is None:
            raise StoreUnreachableError(
                f"{error}; the mirror '{self._mirror.root}' has nothing of this repository to start from"
            ) from error
        logger.warning("%s; serving what the mirror '%s' has of it", error, self._mirror.root)
        return {
            name: RemoteModel(
                name,
                self.uri,
                partial(self._fetch_old, name, error),
                None if (entries := self._index.entries(name)) is None else listed(entries),
            )
            for name in sorted(names)
        }

    def _remembered_alone(self) -> frozenset[str] | None:
        """The name of the one model that the address was found to lead to earlier."""
        if self._open_above is not None:
            store, name = self._open_above()
            if self._mirror.index(self._id_of(store)).entries(name) is None:
                return None
            self._only, self._open_above = name, None
            self._follow(store)
        return frozenset([self._only]) if self._only else None

    def _fetch(self, name: str, entries: Sequence[StoredFile] | None, may_be_old: bool) -> View:
        for listing in range(1, LISTINGS + 1):
            try:
                present = self._store.list(name) if entries is None else entries
            except StoreUnreachableError as error:
                if not may_be_old:
                    raise
                return self._fetch_old(name, error)
            try:
                view = self._view(name, present)
                self._index.keep(name, present)
                return view
            except ObjectChangedError as error:
                if listing == LISTINGS:
                    raise
                logger.warning("model '%s' has changed while it was fetched, it is listed again: %s", name, error)
                entries = None
        raise AssertionError

    def _fetch_old(self, name: str, error: StoreUnreachableError) -> View:
        """The model as of its last mirrored listing."""
        entries = self._index.entries(name)
        if entries is None:
            raise StoreUnreachableError(f"{error}; model '{name}' was never mirrored whole") from error
        view = self._view(name, entries)
        logger.warning("model '%s' comes from the mirror, as it was when '%s' answered last", name, self.uri)
        return view

    def _view(self, name: str, entries: Sequence[StoredFile]) -> View:
        found = leaves(entries, str(self.uri))
        files = {path.partition("/")[2]: entry for path, entry in found.items() if "/" in path}
        return self._mirror.view(self._id, name, self._store, files, f"model '{name}' of {self.uri}")


def _is_model(level: Level) -> bool:
    """Whether a folder looks like one model, as ``layout.is_model_directory`` has it."""
    versions = (name for name in level.folders if name.isascii() and name.isdigit() and not name.startswith("0"))
    return any(form.value in level.files for form in ConfigFormat) or any(True for _ in versions)
