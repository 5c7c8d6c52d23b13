"""The flavors of MLflow: which files of a logged model are served, and under which names.

Source: MLflow's MLmodel format. A flavor whose file a backend reads is served by that backend; ``pyfunc`` runs any
logged Python model with MLflow itself, as a Python model; ``triton`` is a model folder that was logged as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from naiad.errors import StoreError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.remote.mlflow.pyfunc_program import PROGRAM
from naiad.repository.remote.mlflow.registry import Artifact
from naiad.repository.remote.stores.store import Store, StoredFile

_MAX_MLMODEL: Final = 1 << 20
PYFUNC_FOLDER: Final = "logged_model"
"""The folder of a logged model in the version's folder, for ``pyfunc``."""
_CONFIGS: Final = ("config.pbtxt",)
_XGBOOST: Final = {"json": "xgboost.json", "ubj": "xgboost.ubj", "xgb": "xgboost.model", "deprecated": "xgboost.model"}

Entries = Mapping[str, StoredFile]


@dataclass(frozen=True, slots=True)
class Servable:
    """The files of a model's folder, by their paths in it.

    Attributes:
        flavor: the flavor that they come from.
        files: of the store.
        extra: written by Naiad, as texts.
    """

    flavor: str
    files: Mapping[str, StoredFile]
    extra: Mapping[str, str] = field(default_factory=dict)


def servable(uri: RemoteUri, artifact: Artifact, store: Store, flavor: str = "") -> Servable:
    """The files to serve of a logged model; ``flavor`` "" takes the first of its flavors that a backend reads.

    Raises:
        StoreError: the model lacks the flavor, or the flavor's files cannot be served.
        ObjectChangedError: a file has gone meanwhile.
    """
    entries = {entry.path: entry for entry in store.list()}
    if flavor == "triton":
        return _triton(uri, artifact, entries)
    flavors = _flavors(uri, entries, store)
    if not flavor:
        return _first(uri, artifact, entries, flavors)
    name = "python_function" if flavor == "pyfunc" else flavor
    if flavor not in _READERS or not isinstance(flavors.get(name), dict):
        raise StoreError(
            f"'{uri}' has the flavors {_shown(flavors)}, expected {flavor}: it is one of "
            f"{', '.join((*_READERS, 'triton'))}, and one that the model was logged with"
        )
    return Servable(flavor, *_READERS[flavor](uri, artifact, entries, flavors[name]))


def _first(uri: RemoteUri, artifact: Artifact, entries: Entries, flavors: Mapping[str, Any]) -> Servable:
    """The first flavor with a file that a backend reads; ``pyfunc`` has to be asked for, since it needs MLflow."""
    problems = []
    for name, reader in _READERS.items():
        about = flavors.get(name)
        if isinstance(about, dict):
            try:
                return Servable(name, *reader(uri, artifact, entries, about))
            except StoreError as error:
                problems.append(error)
    if problems:
        raise problems[0]
    raise StoreError(
        f"'{uri}' has the flavors {_shown(flavors)}, expected one of {', '.join(_READERS)}: pyfunc has to be asked "
        "for, and a folder with a config.pbtxt is of the flavor triton"
    )


def _shown(flavors: Mapping[str, Any]) -> str:
    return ", ".join(map(str, flavors)) or "none"


def _flavors(uri: RemoteUri, entries: Entries, store: Store) -> dict[str, Any]:
    about = entries.get("MLmodel")
    if about is None or about.size > _MAX_MLMODEL:
        raise StoreError(f"'{uri}' has no file MLmodel of a usual size, expected a model that MLflow has logged")
    text = b"".join(bytes(piece) for piece in store.read(about, 0, about.size))
    try:
        return dict(yaml.safe_load(text)["flavors"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        raise StoreError(f"the file MLmodel of '{uri}' cannot be read, expected YAML with 'flavors'") from None


_Files = tuple[dict[str, StoredFile], dict[str, str]]
_Reader = Callable[[RemoteUri, Artifact, Entries, Mapping[str, Any]], _Files]


def _file(uri: RemoteUri, entries: Entries, path: str) -> StoredFile:
    if path not in entries:
        raise StoreError(f"the file MLmodel of '{uri}' names '{path}', which is not there")
    return entries[path]


def _onnx(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    data = str(about.get("data", "model.onnx"))
    folder = data[: data.rfind("/") + 1]
    files = {f"{artifact.version}/model.onnx": _file(uri, entries, data)}
    # Weights outside of the model are named inside it, relative to its folder.
    for path, entry in entries.items():
        name = path.removeprefix(folder)
        if path != data and path.startswith(folder) and _is_weight(name, data.removeprefix(folder)):
            files[f"{artifact.version}/{name}"] = entry
    return files, {}


def _is_weight(name: str, model: str) -> bool:
    return "/" not in name and name.startswith(model.removesuffix(".onnx")) and name != "model.onnx"


def _pytorch(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    folder = str(about.get("model_data", "data")).strip("/")
    found = entries.get(f"{folder}/model.pt2")
    if found is None:
        raise StoreError(
            f"'{uri}' holds a pickled module of PyTorch, expected {folder}/model.pt2: log it with "
            "mlflow.pytorch.log_model(..., serialization_format='pt2'), or serve it as pyfunc"
        )
    return {f"{artifact.version}/model.pt2": found}, {}


def _sklearn(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    data = str(about.get("pickled_model", "model.skops"))
    # A pickle is served only where the server allows it (--backend-config=fil,allow-pickle=true).
    name = "model.skops" if data.endswith(".skops") else "model.joblib"
    return {f"{artifact.version}/{name}": _file(uri, entries, data)}, {}


def _xgboost(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    data = str(about.get("data", "model.ubj"))
    name = _XGBOOST.get(data.rpartition(".")[2])
    if name is None:
        raise StoreError(f"'{uri}' holds '{data}', expected a file of XGBoost that ends in .ubj, .json or .xgb")
    return {f"{artifact.version}/{name}": _file(uri, entries, data)}, {}


def _keras(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    folder = str(about.get("data", "data")).strip("/")
    return {f"{artifact.version}/model.keras": _file(uri, entries, f"{folder}/model.keras")}, {}


def _tensorflow(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    folder = str(about.get("saved_model_dir") or about.get("data") or "data").strip("/")
    if f"{folder}/model.keras" in entries:
        return _keras(uri, artifact, entries, {"data": folder})
    roots = [path.removesuffix("saved_model.pb") for path in entries if path.endswith("/saved_model.pb")]
    root = next((root for root in roots if root.startswith(f"{folder}/")), None)
    if root is None:
        raise StoreError(f"'{uri}' has neither model.keras nor saved_model.pb in its folder '{folder}'")
    target = f"{artifact.version}/model.savedmodel/"
    return {target + path.removeprefix(root): entry for path, entry in entries.items() if path.startswith(root)}, {}


def _pyfunc(uri: RemoteUri, artifact: Artifact, entries: Entries, about: Mapping[str, Any]) -> _Files:
    version = artifact.version
    files = {f"{version}/{PYFUNC_FOLDER}/{path}": entry for path, entry in entries.items()}
    return files, {f"{version}/model.py": PROGRAM}


_READERS: Final[Mapping[str, _Reader]] = {
    "onnx": _onnx,
    "pytorch": _pytorch,
    "tensorflow": _tensorflow,
    "keras": _keras,
    "xgboost": _xgboost,
    "sklearn": _sklearn,
    "pyfunc": _pyfunc,
}
"""In the order of preference. ``pyfunc`` is "python_function" in the file MLmodel, so it is never taken by itself."""


def _triton(uri: RemoteUri, artifact: Artifact, entries: Entries) -> Servable:
    """A logged model folder: its configuration, and the files of its version as those of the registered one."""
    roots = sorted({path[: -len(name)] for path in entries for name in _CONFIGS if f"/{path}".endswith(f"/{name}")})
    if len(roots) != 1:
        raise StoreError(f"'{uri}' has {len(roots)} files config.pbtxt, expected a logged model folder with one")
    root = roots[0]
    inside = {path.removeprefix(root): entry for path, entry in entries.items() if path.startswith(root)}
    versions = sorted({int(found[1]) for path in inside if (found := re.match(r"([1-9][0-9]{0,17})/", path))})
    if not versions:
        raise StoreError(f"'{uri}' has no version folder beside its config.pbtxt, expected '1' with the model file")
    newest = f"{versions[-1]}/"
    files = {}
    for path, entry in inside.items():
        if path.startswith(newest):
            files[f"{artifact.version}/{path.removeprefix(newest)}"] = entry
        elif not re.match(r"[1-9][0-9]*/", path) and path != "MLmodel":
            files[path] = entry
    return Servable("triton", files)
