"""Models of an MLflow server: a registered version, a logged model, or what a run has logged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from naiad.errors import StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.remote.mirror.mirror import Mirror
from naiad.repository.remote.mirror.views import View
from naiad.repository.remote.mlflow.artifacts import GoneStore
from naiad.repository.remote.mlflow.flavors import Servable, servable
from naiad.repository.remote.mlflow.registry import Registry, model_name
from naiad.repository.remote.repository import RemoteModel
from naiad.repository.remote.stores.store import ObjectChangedError, Store, StoredFile, digest

logger = logging.getLogger("naiad")

_EXTRA = "\nextra"


@dataclass(frozen=True, slots=True)
class MlflowModel:
    """How to serve the model of an address.

    Attributes:
        name: of the model; "" for the one that the address says.
        flavor: of the files; "" for the first that a backend reads.
    """

    name: str = ""
    flavor: str = ""


class MlflowRepository:
    """The one model behind ``models:/name/version``, ``models:/name@alias``, ``runs:/run/path`` and the like.

    Args:
        uri: the address.
        mirror: holds the copy of the model.
        model: its name and flavor.
        environ: the environment variables, ``MLFLOW_TRACKING_URI`` and its like.

    Raises:
        OptionError: the address makes no sense, or no server is named.
    """

    def __init__(
        self,
        uri: RemoteUri,
        mirror: Mirror,
        model: MlflowModel = MlflowModel(),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.uri = uri
        self._mirror = mirror
        self._registry = Registry(uri, environ)
        self._name = model.name or model_name(uri)
        self._flavor = model.flavor
        self._id = f"mlflow-{digest(f'{self._registry.base} {uri.text} {model.name} {model.flavor}'.rstrip())[:24]}"
        self._index = mirror.index(self._id)

    def models(self, is_whole: bool) -> Mapping[str, RemoteModel]:
        """The models of the address; the server is read when a model is fetched."""
        return {self._name: RemoteModel(self._name, self.uri, partial(self.fetch, True))}

    def find(self, name: str, may_be_old: bool) -> RemoteModel | None:
        return RemoteModel(name, self.uri, partial(self.fetch, may_be_old)) if name == self._name else None

    def present(self) -> Mapping[str, RemoteModel]:
        try:
            store, found = self._look()
        except ObjectChangedError as error:
            raise StoreError(f"the model '{self.uri}' cannot be looked at: {error}") from error
        # With the store's identity: another run may have a file of the same path and size.
        files = {path: (e.size, f"{store.identity} {e.path} {e.version}") for path, e in found.files.items()}
        return {self._name: RemoteModel(self._name, self.uri, partial(self.fetch, False), files)}

    def fetch(self, may_be_old: bool) -> View:
        """The folder of the model, which the caller holds; ``may_be_old`` allows the mirror's when nothing responds.

        Raises:
            StoreError: it cannot be fetched.
        """
        try:
            store, found = self._look()
            view = self._view(store, found.files, found.extra)
        except ObjectChangedError as error:
            raise StoreError(f"the model '{self.uri}' cannot be fetched: {error}") from error
        except StoreUnreachableError as error:
            if not may_be_old:
                raise
            return self._fetch_old(error)
        # The entries found, by their paths in the folder of the model.
        entries = [StoredFile(f"{path}\n{e.path}", e.size, e.version) for path, e in found.files.items()]
        entries += [StoredFile(f"{path}{_EXTRA}\n{text}", 0, "") for path, text in found.extra.items()]
        self._index.keep(self._name, entries)
        self._index.keep_names([store.identity])
        return view

    def _look(self) -> tuple[Store, Servable]:
        artifact = self._registry.artifact()
        store = self._registry.store(artifact)
        return store, servable(self.uri, artifact, store, self._flavor)

    def _fetch_old(self, error: StoreUnreachableError) -> View:
        known, identity = self._index.entries(self._name), self._index.names()
        if known is None or not identity:
            raise StoreUnreachableError(f"{error}; the mirror '{self._mirror.root}' does not have it either") from error
        logger.warning("%s; model '%s' comes from the mirror", error, self._name)
        files, extra = {}, {}
        for entry in known:
            path, _, source = entry.path.partition("\n")
            if source.startswith(_EXTRA[1:] + "\n"):
                extra[path] = source.partition("\n")[2]
            else:
                files[path] = StoredFile(source, entry.size, entry.version)
        # The identity is part of the names of contents in the mirror, so the store that is gone must keep it.
        return self._view(GoneStore(next(iter(identity)), error), files, extra)

    def _view(self, store: Store, files: Mapping[str, StoredFile], extra: Mapping[str, str]) -> View:
        return self._mirror.view(self._id, self._name, store, files, f"model '{self._name}' of {self.uri}", extra)
