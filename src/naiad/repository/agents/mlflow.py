"""The repository agent ``mlflow``: a model's version folders are the versions of a model in MLflow.

Its parameters are ``model``, an address or several with commas between them (``models:/iris/3,models:/iris/4``), and
``flavor``. The folder of the model keeps its configuration and what else lies in it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.errors import InvalidArgumentError, ModelLoadError
from naiad.options.remote_uri import MLFLOW, RemoteUri, is_remote
from naiad.repository.remote.mirror.mirror import Mirror
from naiad.repository.remote.mlflow_repository import MlflowModel, MlflowRepository

if TYPE_CHECKING:
    from naiad.repository.agents.call import AgentCall

_PARAMETERS: Final = ("model", "flavor", "requested")
MAX_VERSIONS: Final = 16
"""The most versions of a model, as many as a split may have."""


class MlflowAgent:
    """Puts links to the files in ``mirror`` into a folder of the load, and holds them until the model is unloaded."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._held = ExitStack()

    def act(self, call: AgentCall) -> Path | None:
        """Fetch the versions at LOAD.

        Raises:
            InvalidArgumentError: a parameter is wrong.
            ModelLoadError: two of the models have the same version.
            StoreError: a model cannot be fetched.
        """
        if call.action == "LOAD":
            try:
                return self._load(call)
            except BaseException:
                self._held.close()
                raise
        if call.action in ("LOAD_FAIL", "UNLOAD_COMPLETE"):
            self._held.close()
        return None

    def _load(self, call: AgentCall) -> Path:
        model = MlflowModel(call.model, call.parameters.get("flavor", ""))
        views = []
        for uri in _addresses(call):
            view = MlflowRepository(RemoteUri(uri), self._mirror, model).fetch(may_be_old=True)
            self._held.callback(view.release)
            views.append((uri, view.path))
        target = call.new_folder()
        for entry in call.location.iterdir():
            os.symlink(entry.absolute(), target / entry.name)
        for uri, folder in views:
            _link(uri, folder, target)
        return target


def _addresses(call: AgentCall) -> list[str]:
    if unknown := set(call.parameters) - set(_PARAMETERS):
        raise InvalidArgumentError(
            f"the repository agent 'mlflow' has no parameter '{min(unknown)}', only {_PARAMETERS}"
        )
    found = [part.strip() for part in call.parameters.get("model", "").split(",") if part.strip()]
    if not 0 < len(found) <= MAX_VERSIONS:
        raise InvalidArgumentError(
            f"the parameter 'model' of the repository agent 'mlflow' names {len(found)} models, expected 1 to "
            f"{MAX_VERSIONS} addresses such as models:/<name>/<version> with commas between them"
        )
    for uri in found:
        # Only MLflow's own: a request must not make the server read any address.
        if not is_remote(uri) or RemoteUri(uri).scheme not in MLFLOW:
            raise InvalidArgumentError(f"'{RemoteUri(uri)}' is no model of MLflow, expected models:/<name>/<version>")
    return found


def _link(uri: str, folder: Path, target: Path) -> None:
    for entry in folder.iterdir():
        place = target / entry.name
        if not os.path.lexists(place):
            os.symlink(entry, place)
        elif entry.is_dir() and entry.name.isdigit():
            raise ModelLoadError(f"'{uri}' is version {entry.name}, of which model '{target.name}' has another one")
