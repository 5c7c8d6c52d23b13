"""``NaiadDeploymentClient``: the commands of ``mlflow deployments`` as calls to a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mlflow.deployments import BaseDeploymentClient, PredictionsResponse
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from mlflow_naiad import written
from mlflow_naiad.addresses import pinned
from mlflow_naiad.options import DeploymentOptions, config_fields, read_options, wrong
from mlflow_naiad.tensors import to_inputs, to_table
from naiad.client import Client, InferResult
from naiad.client.mlflow import (
    Deployment,
    deploy,
    deploy_canary,
    deployed,
    find_deployed,
    models_of,
    version_of,
)
from naiad.errors import NaiadError

FLAVORS = ("onnx", "pytorch", "tensorflow", "keras", "xgboost", "sklearn", "pyfunc", "triton")
TARGET = "naiad"


def server_url(target_uri: str = TARGET) -> str:
    """The address of the server: that of the target, else of ``NAIAD_URL``, else of ``TRITON_URL``."""
    _, _, address = target_uri.partition(":")
    return address or os.environ.get("NAIAD_URL") or os.environ.get("TRITON_URL") or "localhost:8000"


class NaiadDeploymentClient(BaseDeploymentClient):  # type: ignore[misc]
    """Deployments on one server. Every method raises ``MlflowException`` with the server's text when it refuses."""

    def __init__(self, target_uri: str = TARGET) -> None:
        super().__init__(target_uri)
        key = os.environ.get("NAIAD_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A load may fetch gigabytes, and compile.
        self._client = Client(server_url(target_uri), headers=headers, timeout_s=3600)

    def create_deployment(
        self,
        name: str,
        model_uri: str,
        flavor: str | None = None,
        config: Mapping[str, Any] | None = None,
        endpoint: str | None = None,
    ) -> dict[str, Any]:
        """Serve a model under a new name; returns the deployment."""
        with _errors():
            options = read_options(config)
            if options.canary is not None:
                raise wrong("-C canary: a first version has all requests, update has canaries")
            if find_deployed(self._client, name) is not None:
                raise wrong(f"the deployment '{name}' exists: update or delete it")
            if name in models_of(self._client.index()):
                raise wrong(f"the server has a model '{name}' that does not come from MLflow: choose another name")
            self._deploy(name, model_uri, flavor, options)
            return self._about(name)

    def update_deployment(
        self,
        name: str,
        model_uri: str | None = None,
        flavor: str | None = None,
        config: Mapping[str, Any] | None = None,
        endpoint: str | None = None,
    ) -> dict[str, Any]:
        """Serve another version, or the same with another configuration; returns the deployment."""
        with _errors():
            options = read_options(config)
            present = self._present(name)
            uri = model_uri or present.models[-1]
            self._deploy(name, uri, flavor or present.flavor or None, options)
            return self._about(name)

    def delete_deployment(
        self, name: str, config: Mapping[str, Any] | None = None, endpoint: str | None = None
    ) -> None:
        """Unload a model. One that is not there is no error, as MLflow asks."""
        with _errors():
            options = read_options(config)
            if options.repository is not None:
                written.remove(options.repository, name)
            if find_deployed(self._client, name) is not None:
                self._client.unload(name)

    def list_deployments(self, endpoint: str | None = None) -> list[dict[str, Any]]:
        """The models that come from MLflow."""
        with _errors():
            names = models_of(self._client.index())
            return [self._about(name) for name in names if find_deployed(self._client, name) is not None]

    def get_deployment(self, name: str, endpoint: str | None = None) -> dict[str, Any]:
        """The addresses, versions, states and shares of a deployment."""
        with _errors():
            return self._about(name)

    def predict(
        self, deployment_name: str | None = None, inputs: Any = None, endpoint: str | None = None
    ) -> PredictionsResponse:
        """Run a model on a table, an array, or arrays by name."""
        with _errors():
            if deployment_name is None:
                raise wrong("predict needs the name of a deployment")
            metadata = self._client.metadata(deployment_name)
            found: InferResult = self._client.infer(deployment_name, to_inputs(inputs, metadata["inputs"]))
            return PredictionsResponse.from_json(to_table(found))

    def explain(self, deployment_name: str | None = None, df: Any = None, endpoint: str | None = None) -> Any:
        """Not offered."""
        raise MlflowException("the target naiad explains no predictions")

    # Parts

    def _deploy(self, name: str, model_uri: str, flavor: str | None, options: DeploymentOptions) -> None:
        if flavor is not None and flavor not in FLAVORS:
            raise wrong(f"the flavor '{flavor}' is not served, expected one of {', '.join(FLAVORS)}")
        registry = MlflowClient()
        address = pinned(registry, model_uri)
        config = {**_logged_config(address), **options.config} if flavor == "triton" else dict(options.config)
        wanted = Deployment(name, (address,), flavor or "", config)
        if options.canary is not None:
            deploy_canary(self._client, wanted, options.canary)
        else:
            deploy(self._client, wanted)
        if options.repository is not None:
            written.write(options.repository, deployed(self._client, name) or wanted, config)

    def _present(self, name: str) -> Deployment:
        found = deployed(self._client, name)
        if found is None:
            raise wrong(f"the model '{name}' does not come from MLflow")
        return found

    def _about(self, name: str) -> dict[str, Any]:
        found = self._present(name)
        states = {e["version"]: e["state"] for e in self._client.index() if e["name"] == name and "version" in e}
        versions = [
            {"version": version_of(uri), "model_uri": uri, "state": states.get(str(version_of(uri)), "UNAVAILABLE")}
            for uri in found.models
        ]
        return {
            "name": name,
            "flavor": found.flavor or None,
            "versions": versions,
            "split": self._client.routes(name).get("split"),
        }


def _logged_config(address: str) -> dict[str, Any]:
    """The configuration in a logged model folder."""
    import mlflow

    paths = [item.path for item in mlflow.artifacts.list_artifacts(address)]
    found = [path for path in paths if path.rpartition("/")[2] == "config.pbtxt"]
    for path in paths:
        if not found:
            inner = mlflow.artifacts.list_artifacts(f"{address}/{path}")
            found = [item.path for item in inner if item.path.endswith("/config.pbtxt")]
    if len(found) != 1:
        raise wrong(f"'{address}' has {len(found)} files config.pbtxt, expected a logged model folder with one")
    return config_fields(mlflow.artifacts.load_text(f"{address}/{found[0]}"))


class _errors:  # noqa: N801
    """Errors of the server and of the client as MLflow's."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NaiadError):
            raise MlflowException(str(error)) from error
