"""Models of an MLflow server: a registered version, or what a run has logged.

Source: MLflow's REST API and its MLmodel format. The flavor ``onnx`` becomes a model folder with ``model.onnx``.
"""

from __future__ import annotations

import logging
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import yaml

from naiad.errors import OptionError, StoreError, StoreUnreachableError
from naiad.options.remote_uri import CLOUD, RemoteUri
from naiad.repository.remote.mirror.mirror import Mirror
from naiad.repository.remote.mirror.views import View
from naiad.repository.remote.repository import RemoteModel
from naiad.repository.remote.stores.store import (
    MAX_ENTRIES,
    Level,
    ObjectChangedError,
    Store,
    StoredFile,
    checked_path,
    digest,
)
from naiad.repository.remote.stores.web import UNKNOWN, Web, basic

logger = logging.getLogger("naiad")

TRACKING: Final = "MLFLOW_TRACKING_URI"
_API: Final = "/api/2.0/mlflow"
_MAX_MLMODEL: Final = 1 << 20
_MAX_DEPTH: Final = 32
_REGISTERED: Final = re.compile(r"models:/(?P<name>[^/@]+)(?:/(?P<version>[^/@]+)|@(?P<alias>[^/@]+))")
_RUN: Final = re.compile(r"runs:/(?P<run>[^/]+)/(?P<path>.+)")
_ARTIFACT: Final = re.compile(r"mlflow-artifacts:/(?:/[^/]*/)?(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Artifact:
    """The address of a model's files, and their version (1 when it has no number)."""

    uri: str
    version: int


class MlflowRepository:
    """The one model behind ``models:/name/version``, ``models:/name@alias``, ``runs:/run/path`` and the like.

    Args:
        uri: the address.
        mirror: holds the copy of the model.
        environ: the environment variables, ``MLFLOW_TRACKING_URI`` and its like.

    Raises:
        OptionError: the address makes no sense, or no server is named.
    """

    def __init__(self, uri: RemoteUri, mirror: Mirror, environ: Mapping[str, str] | None = None) -> None:
        self.uri = uri
        self._mirror = mirror
        environ = os.environ if environ is None else environ
        self._base = environ.get(TRACKING, "").rstrip("/")
        if not re.match("https?://", self._base):
            raise OptionError(
                f"the model '{uri}' needs an MLflow server, {TRACKING} is '{RemoteUri(self._base)}', expected http://host:port"
            )
        # Credentials in the address go into a header, and nowhere else: the address is in messages and identities.
        self._web = Web(_sign_in(self._base, environ))
        parts = urllib.parse.urlsplit(self._base)
        self._base = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._name = _model_name(uri)
        self._id = f"mlflow-{digest(f'{self._base} {uri.text}')[:24]}"
        self._index = mirror.index(self._id)

    def models(self, is_whole: bool) -> Mapping[str, RemoteModel]:
        """The models of the address; the server is read when a model is fetched."""
        return {self._name: RemoteModel(self._name, self.uri, partial(self._fetch, True))}

    def find(self, name: str, may_be_old: bool) -> RemoteModel | None:
        return RemoteModel(name, self.uri, partial(self._fetch, may_be_old)) if name == self._name else None

    def present(self) -> Mapping[str, RemoteModel]:
        try:
            artifact = self._artifact()
            store = self._store(artifact)
            files = _servable(self.uri, artifact, store)
        except ObjectChangedError as error:
            raise StoreError(f"the model '{self.uri}' cannot be looked at: {error}") from error
        # With the store's identity: another run may have a file of the same path and size.
        found = {path: (e.size, f"{store.identity} {e.path} {e.version}") for path, e in files.items()}
        return {self._name: RemoteModel(self._name, self.uri, partial(self._fetch, False), found)}

    def _fetch(self, may_be_old: bool) -> View:
        try:
            artifact = self._artifact()
            store = self._store(artifact)
            files = _servable(self.uri, artifact, store)
            view = self._view(store, files)
        except ObjectChangedError as error:
            raise StoreError(f"the model '{self.uri}' cannot be fetched: {error}") from error
        except StoreUnreachableError as error:
            if not may_be_old:
                raise
            return self._fetch_old(error)
        # The entries found, by their paths in the folder of the model.
        self._index.keep(self._name, [StoredFile(f"{path}\n{e.path}", e.size, e.version) for path, e in files.items()])
        self._index.keep_names([store.identity])
        return view

    def _fetch_old(self, error: StoreUnreachableError) -> View:
        known, identity = self._index.entries(self._name), self._index.names()
        if known is None or not identity:
            raise StoreUnreachableError(f"{error}; the mirror '{self._mirror.root}' does not have it either") from error
        logger.warning("%s; model '%s' comes from the mirror", error, self._name)
        files = {}
        for entry in known:
            path, _, source = entry.path.partition("\n")
            files[path] = StoredFile(source, entry.size, entry.version)
        # The identity is part of the names of contents in the mirror, so the store that is gone must keep it.
        return self._view(_GoneStore(next(iter(identity)), error), files)

    def _view(self, store: Store, files: Mapping[str, StoredFile]) -> View:
        return self._mirror.view(self._id, self._name, store, files, f"model '{self._name}' of {self.uri}")

    def _artifact(self) -> Artifact:
        if found := _REGISTERED.fullmatch(self.uri.text):
            return self._registered(**found.groupdict())
        if found := _RUN.fullmatch(self.uri.text):
            run = self._get("runs/get", run_id=found["run"])
            root = _text(run, self.uri, "run", "info", "artifact_uri")
            return Artifact(f"{root.rstrip('/')}/{found['path'].strip('/')}", 1)
        return Artifact(self.uri.text, 1)

    def _registered(self, name: str, version: str | None, alias: str | None) -> Artifact:
        if alias is not None:
            found = self._get("registered-models/alias", name=name, alias=alias)
            version = _text(found, self.uri, "model_version", "version")
        elif version is None or not version.isdigit():
            version = self._latest(name, version or "latest")
        found = self._get("model-versions/get-download-uri", name=name, version=version)
        # The text is the server's: a folder's version has at most 18 digits here.
        number = int(version) if version.isdigit() and len(version) < 19 else 0
        return Artifact(_text(found, self.uri, "artifact_uri"), max(1, number))

    def _latest(self, name: str, stage: str) -> str:
        """The newest version, or the newest of a stage."""
        found = self._get("registered-models/get", name=name).get("registered_model", {})
        versions = [v for v in found.get("latest_versions", []) if isinstance(v, dict)]
        numbers = [
            int(v["version"])
            for v in versions
            if str(v.get("version", "")).isdigit()
            and stage.lower() in ("latest", str(v.get("current_stage", "")).lower())
        ]
        if not numbers:
            raise StoreError(f"'{self.uri}' has no version '{stage}': give a number, latest, a stage, or @alias")
        return str(max(numbers))

    def _get(self, method: str, **query: str) -> Mapping[str, Any]:
        url = f"{self._base}{_API}/{method}?{urllib.parse.urlencode(query)}"
        try:
            return self._web.json(url, f"find '{self.uri}' with")
        except ObjectChangedError as error:
            raise StoreError(f"{error}: MLflow has no such model, version or run") from error

    def _store(self, artifact: Artifact) -> Store:
        if found := _ARTIFACT.fullmatch(artifact.uri):
            return ArtifactStore(self._base, found["path"].strip("/"), self._web)
        scheme = artifact.uri.partition(":")[0]
        if scheme in CLOUD:
            from naiad.repository.remote.stores.cloud import open_cloud, place_of

            place = RemoteUri(artifact.uri)
            return open_cloud(place, place_of(place))
        raise StoreError(
            f"the files of '{self.uri}' lie at '{RemoteUri(artifact.uri)}', which cannot be read from here: expected "
            "an MLflow server that serves artifacts (mlflow-artifacts:/), s3:// or gs://"
        )


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


class _GoneStore:
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


def _servable(uri: RemoteUri, artifact: Artifact, store: Store) -> dict[str, StoredFile]:
    """The files of the model that are served, by their paths in its folder."""
    entries = {entry.path: entry for entry in store.list()}
    about = entries.get("MLmodel")
    if about is None or about.size > _MAX_MLMODEL:
        raise StoreError(f"'{uri}' has no file MLmodel of a usual size, expected a model that MLflow has logged")
    text = b"".join(bytes(piece) for piece in store.read(about, 0, about.size))
    try:
        content = yaml.safe_load(text)
        flavors = dict(content["flavors"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        raise StoreError(f"the file MLmodel of '{uri}' cannot be read, expected YAML with 'flavors'") from None
    onnx = flavors.get("onnx")
    if not isinstance(onnx, dict):
        raise StoreError(
            f"'{uri}' has the flavors {', '.join(map(str, flavors)) or 'none'}, expected onnx, which alone is served: "
            "log the model with mlflow.onnx.log_model"
        )
    data = str(onnx.get("data", "model.onnx"))
    if data not in entries:
        raise StoreError(f"the file MLmodel of '{uri}' names '{data}', which is not there")
    folder = data[: data.rfind("/") + 1]
    files = {f"{artifact.version}/model.onnx": entries[data]}
    # Weights outside of the model are named inside it, relative to its folder.
    for path, entry in entries.items():
        name = path.removeprefix(folder)
        if path != data and path.startswith(folder) and _is_weight(name, data.removeprefix(folder)):
            files[f"{artifact.version}/{name}"] = entry
    return files


def _is_weight(name: str, model: str) -> bool:
    return "/" not in name and name.startswith(model.removesuffix(".onnx")) and name != "model.onnx"


def _model_name(uri: RemoteUri) -> str:
    if found := _REGISTERED.fullmatch(uri.text):
        return urllib.parse.unquote(found["name"])
    if (found := _RUN.fullmatch(uri.text)) or (found := _ARTIFACT.fullmatch(uri.text)):
        name = found["path"].strip("/").rpartition("/")[2]
        if name not in ("", ".", ".."):
            return name
    raise OptionError(
        f"'{uri}' names no model of MLflow, expected models:/<name>/<version>, models:/<name>@<alias>, "
        "runs:/<run>/<path> or mlflow-artifacts:/<path>"
    )


def _sign_in(base: str, environ: Mapping[str, str]) -> dict[str, str]:
    if token := environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    parts = urllib.parse.urlsplit(base)
    user = environ.get("MLFLOW_TRACKING_USERNAME") or parts.username
    return basic(user, environ.get("MLFLOW_TRACKING_PASSWORD") or parts.password)


def _text(content: Mapping[str, Any], uri: RemoteUri, *names: str) -> str:
    found: Any = content
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, int):
        return str(found)
    if not isinstance(found, str) or not found:
        raise StoreError(f"MLflow's answer about '{uri}' has no '{'.'.join(names)}'")
    return found
