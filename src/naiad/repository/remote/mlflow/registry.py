"""What an MLflow server says about models: where the files of a registered version, a run's or a logged model lie.

Source: MLflow's REST API.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from naiad.errors import OptionError, StoreError
from naiad.options.remote_uri import CLOUD, RemoteUri
from naiad.repository.remote.mlflow.artifacts import ArtifactStore
from naiad.repository.remote.stores.store import ObjectChangedError, Store
from naiad.repository.remote.stores.web import Web, basic

TRACKING: Final = "MLFLOW_TRACKING_URI"
_API: Final = "/api/2.0/mlflow"
_LOGGED: Final = re.compile(r"models:/(?P<id>m-[0-9a-f]{32})")
_REGISTERED: Final = re.compile(r"models:/(?P<name>[^/@]+)(?:/(?P<version>[^/@]+)|@(?P<alias>[^/@]+))")
_RUN: Final = re.compile(r"runs:/(?P<run>[^/]+)/(?P<path>.+)")
_ARTIFACT: Final = re.compile(r"mlflow-artifacts:/(?:/[^/]*/)?(?P<path>.+)")
_MAX_LOGGED: Final = 100


@dataclass(frozen=True, slots=True)
class Artifact:
    """The address of a model's files, and their version (1 when it has no number)."""

    uri: str
    version: int


class Registry:
    """The MLflow server of ``MLFLOW_TRACKING_URI``, asked for ``uri``.

    Args:
        uri: the address of a model.
        environ: the environment variables, ``MLFLOW_TRACKING_URI`` and its like.

    Attributes:
        base: the server's address, without credentials.

    Raises:
        OptionError: no server is named.
    """

    def __init__(self, uri: RemoteUri, environ: Mapping[str, str] | None = None) -> None:
        self.uri = uri
        environ = os.environ if environ is None else environ
        base = environ.get(TRACKING, "").rstrip("/")
        if not re.match("https?://", base):
            raise OptionError(
                f"the model '{uri}' needs an MLflow server, {TRACKING} is '{RemoteUri(base)}', expected http://host:port"
            )
        # Credentials in the address go into a header, and nowhere else: the address is in messages and identities.
        self._web = Web(_sign_in(base, environ))
        parts = urllib.parse.urlsplit(base)
        self.base = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def artifact(self) -> Artifact:
        """Where the model's files lie.

        Raises:
            StoreError: there is no such model, or the server does not answer.
        """
        text = self.uri.text
        if found := _LOGGED.fullmatch(text):
            return Artifact(self._logged(found["id"])[1], 1)
        if found := _REGISTERED.fullmatch(text):
            return self._registered(**found.groupdict())
        if found := _RUN.fullmatch(text):
            return Artifact(self._of_run(found["run"], found["path"].strip("/")), 1)
        return Artifact(text, 1)

    def store(self, artifact: Artifact) -> Store:
        """The store that holds the files.

        Raises:
            StoreError: they lie where this machine cannot read them.
        """
        if found := _ARTIFACT.fullmatch(artifact.uri):
            return ArtifactStore(self.base, found["path"].strip("/"), self._web)
        scheme = artifact.uri.partition(":")[0]
        if scheme in CLOUD:
            from naiad.repository.remote.stores.cloud import open_cloud, place_of

            place = RemoteUri(artifact.uri)
            return open_cloud(place, place_of(place))
        raise StoreError(
            f"the files of '{self.uri}' lie at '{RemoteUri(artifact.uri)}', which cannot be read from here: expected "
            "an MLflow server that serves artifacts (mlflow-artifacts:/), s3:// or gs://"
        )

    def _registered(self, name: str, version: str | None, alias: str | None) -> Artifact:
        name = urllib.parse.unquote(name)
        if alias is not None:
            found = self._get("registered-models/alias", name=name, alias=alias)
            version = self._text(found, "model_version", "version")
        elif version is None or not version.isdigit():
            version = self._latest(name, version or "latest")
        found = self._get("model-versions/get-download-uri", name=name, version=version)
        # The text is the server's: a folder's version has at most 18 digits here.
        number = int(version) if version.isdigit() and len(version) < 19 else 0
        return Artifact(self._text(found, "artifact_uri"), max(1, number))

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

    def _of_run(self, run_id: str, path: str) -> str:
        """The model ``path`` of a run: since MLflow 3 a logged model of its own, before that a folder of the run."""
        run = _object(self._get("runs/get", run_id=run_id), "run")
        logged = _object(run, "outputs").get("model_outputs")
        for entry in logged[:_MAX_LOGGED] if isinstance(logged, list) else ():
            name, uri = self._logged(str(entry.get("model_id", "") if isinstance(entry, dict) else ""))
            if name == path:
                return uri
        return f"{self._text(run, 'info', 'artifact_uri').rstrip('/')}/{path}"

    def _logged(self, model_id: str) -> tuple[str, str]:
        """The name and the files of a logged model."""
        found = self._get(f"logged-models/{urllib.parse.quote(model_id, safe='')}")
        return self._text(found, "model", "info", "name"), self._text(found, "model", "info", "artifact_uri")

    def _get(self, method: str, **query: str) -> Mapping[str, Any]:
        url = f"{self.base}{_API}/{method}?{urllib.parse.urlencode(query)}"
        try:
            return self._web.json(url, f"find '{self.uri}' with")
        except ObjectChangedError as error:
            raise StoreError(f"{error}: MLflow has no such model, version or run") from error

    def _text(self, content: Mapping[str, Any], *names: str) -> str:
        found: Any = content
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, int):
            return str(found)
        if not isinstance(found, str) or not found:
            raise StoreError(f"MLflow's answer about '{self.uri}' has no '{'.'.join(names)}'")
        return found


def _object(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def model_name(uri: RemoteUri) -> str:
    """The name of the model behind an address.

    Raises:
        OptionError: it is no address of MLflow.
    """
    if found := _LOGGED.fullmatch(uri.text):
        return found["id"]
    if found := _REGISTERED.fullmatch(uri.text):
        return urllib.parse.unquote(found["name"])
    if (found := _RUN.fullmatch(uri.text)) or (found := _ARTIFACT.fullmatch(uri.text)):
        name = found["path"].strip("/").rpartition("/")[2]
        if name not in ("", ".", ".."):
            return name
    raise OptionError(
        f"'{uri}' names no model of MLflow, expected models:/<name>/<version>, models:/<name>@<alias>, models:/<id>, "
        "runs:/<run>/<path> or mlflow-artifacts:/<path>"
    )


def _sign_in(base: str, environ: Mapping[str, str]) -> dict[str, str]:
    if token := environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    parts = urllib.parse.urlsplit(base)
    user = environ.get("MLFLOW_TRACKING_USERNAME") or parts.username
    return basic(user, environ.get("MLFLOW_TRACKING_PASSWORD") or parts.password)
