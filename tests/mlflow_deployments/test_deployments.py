"""The target ``naiad`` of ``mlflow deployments``: the real MLflow, artefacts on S3, and a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from naiad.testing.server import RunningServer, serving
from support.mlflow_server import PYTHON, Mlflow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not PYTHON, reason="needs NAIAD_MLFLOW_PYTHON, a Python with mlflow, boto3, onnx and onnxruntime"
    ),
]
ROWS = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
# All commands in one process: each start of MLflow takes seconds.
SCRIPT = """
import json, sys
from mlflow.deployments import get_deploy_client, run_local
from mlflow.exceptions import MlflowException
client = get_deploy_client("naiad")
for line in sys.stdin:
    method, arguments = json.loads(line)
    try:
        found = getattr(client, method)(**arguments)
        found = json.loads(found.to_json()) if hasattr(found, "to_json") else found
    except MlflowException as error:
        found = {"error": str(error)}
    print(json.dumps(found), flush=True)
"""


class Commands:
    """A process with the plugin, which is sent one call after another."""

    def __init__(self, mlflow: Mlflow, server: RunningServer) -> None:
        import subprocess

        self._process = subprocess.Popen(
            [PYTHON, "-W", "ignore", "-c", SCRIPT],
            env={**mlflow.environment, "TRITON_URL": server.url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, method: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def server(mlflow: Mlflow, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    arguments = ("--model-repository", repository, "--model-control-mode", "explicit")
    mirror = ("--model-repository-mirror", folder / "mirror")
    environment = {name: value for name, value in mlflow.environment.items() if name != "PYTHONPATH"}
    with serving(folder / "log.txt", *arguments, *mirror, env=environment) as found:
        yield found


@pytest.fixture(scope="module")
def call(mlflow: Mlflow, server: RunningServer) -> Iterator[Commands]:
    found = Commands(mlflow, server)
    yield found
    found.close()


def predictions(found: Any) -> Any:
    assert "predictions" in found, found
    return next(iter(found["predictions"].values()))


def test_create_update_and_delete(call: Commands, server: RunningServer) -> None:
    made = call("create_deployment", name="m", model_uri="models:/times@champion", flavor="onnx")
    version = {"version": 1, "model_uri": "models:/times/1", "state": "READY"}
    assert made == {"name": "m", "flavor": "onnx", "versions": [version], "split": {}}
    assert predictions(call("predict", deployment_name="m", inputs=ROWS)) == [[2, 4, 6, 8], [10, 12, 14, 16]]
    assert call("list_deployments") == [made] and call("get_deployment", name="m") == made

    again = call("create_deployment", name="m", model_uri="models:/times/2")
    assert "the deployment 'm' exists" in again["error"]
    updated = call("update_deployment", name="m", model_uri="models:/times@challenger", config={"instances": "2"})
    assert [v["version"] for v in updated["versions"]] == [2]
    assert predictions(call("predict", deployment_name="m", inputs={"x": ROWS}))[0] == [3, 6, 9, 12]
    assert server.get("/v2/models/m/config").json()["instance_group"][0]["count"] == 2

    assert call("delete_deployment", name="m") is None
    assert call("delete_deployment", name="m") is None
    assert call("list_deployments") == []
    assert server.get("/v2/models/m/ready").status == 400


def test_a_canary_has_its_share(call: Commands, server: RunningServer) -> None:
    call("create_deployment", name="c", model_uri="models:/times/1")
    found = call("update_deployment", name="c", model_uri="models:/times/2", config={"canary": "20"})
    assert found["split"] == {"1": 80, "2": 20}
    value = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}]}
    versions = [server.infer("c", value).json()["model_version"] for _ in range(50)]
    assert versions.count("2") == 10
    whole = call("update_deployment", name="c", model_uri="models:/times/2")
    assert (whole["split"], [v["version"] for v in whole["versions"]]) == ({"2": 1}, [2])
    back = call("update_deployment", name="c", model_uri="models:/times/1")
    assert [v["version"] for v in back["versions"]] == [1]
    assert server.infer("c", value).json()["outputs"][0]["data"] == [2, 2, 2, 2]
    call("delete_deployment", name="c")


def test_a_wrong_version_changes_nothing(call: Commands) -> None:
    call("create_deployment", name="w", model_uri="models:/times/1")
    before = call("get_deployment", name="w")
    for config in ({}, {"canary": "5"}):
        refused = call("update_deployment", name="w", model_uri="models:/times/9", config=config)
        assert "MLflow has no such model, version or run" in refused["error"]
    after = call("get_deployment", name="w")
    assert (after["versions"], predictions(call("predict", deployment_name="w", inputs=ROWS))[0]) == (
        before["versions"],
        [2, 4, 6, 8],
    )
    call("delete_deployment", name="w")


@pytest.mark.parametrize("name", ["folder", "half", "logistic", "boosted", "linear", "dense"])
def test_flavors(call: Commands, mlflow: Mlflow, name: str) -> None:
    flavors = {"folder": "triton", "half": "pyfunc", "logistic": "sklearn", "boosted": "xgboost", "linear": "pytorch"}
    needs = {"logistic": "skops", "boosted": "treelite", "linear": "torch", "dense": "keras"}
    if name not in mlflow.flavors:
        pytest.skip(f"the Python of MLflow lacks the framework of '{name}'")
    if name in needs:
        pytest.importorskip(needs[name])
    config = {"half": {"parameters.python": PYTHON}, "linear": {"parameters.COMPILE": "false"}}.get(name, {})
    flavor = flavors.get(name, "tensorflow")
    made = call("create_deployment", name=name, model_uri=f"models:/{name}/1", flavor=flavor, config=config)
    assert made.get("flavor") == flavor, made
    found = predictions(call("predict", deployment_name=name, inputs=ROWS))
    assert len(found) == 2
    exact = {"folder": [5, 10, 15, 20], "half": [0.5, 1, 1.5, 2]}
    assert name not in exact or found[0] == exact[name]
    call("delete_deployment", name=name)


def test_a_deployment_that_is_written_outlasts_a_restart(
    call: Commands, mlflow: Mlflow, repository: Path, tmp_path: Path
) -> None:
    options = {"repository": str(repository), "max_batch_size": "4"}
    call("create_deployment", name="kept", model_uri="models:/times/2", config=options)
    environment = {name: value for name, value in mlflow.environment.items() if name != "PYTHONPATH"}
    mirror = ("--model-repository-mirror", tmp_path / "mirror")
    with serving(tmp_path / "log.txt", "--model-repository", repository, *mirror, env=environment) as second:
        value = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}]}
        found = second.infer("kept", value).json()
        assert (found["model_version"], found["outputs"][0]["data"]) == ("2", [3, 3, 3, 3])
        assert second.get("/v2/models/kept/config").json()["max_batch_size"] == 4
    call("delete_deployment", name="kept", config={"repository": str(repository)})
    assert list(repository.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"flavor": "spacy"}, "the flavor 'spacy' is not served"),
        ({"flavor": "xgboost"}, "has the flavors onnx, python_function, expected xgboost"),
        ({"config": {"color": "red"}}, "-C color: there is no such option"),
        ({"config": {"instances": "many"}}, "expected a whole number from 1 to 1024"),
        ({"config": {"canary": "5"}}, "a first version has all requests"),
        ({"config": {"config": "/nowhere/config.pbtxt"}}, "No such file"),
        ({"model_uri": "file:///etc"}, "is no model of MLflow"),
        ({"model_uri": "s3://bucket/model"}, "is no model of MLflow"),
        ({"model_uri": "models:/times@nobody"}, "nobody"),
    ],
)
def test_errors_say_what_to_change(call: Commands, arguments: dict[str, Any], text: str) -> None:
    found = call("create_deployment", **{"name": "e", "model_uri": "models:/times/1", **arguments})
    assert text in found["error"]
    assert call("get_deployment", name="e")["error"]


def test_the_command_line(mlflow: Mlflow, server: RunningServer, tmp_path: Path) -> None:
    command = ("-W", "ignore", "-m", "mlflow", "deployments")
    assert "NAIAD_URL" in mlflow.run(*command, "help", "-t", "naiad")
    named = ("-t", "naiad", "--name", "cli")
    options = ("-m", "models:/times@champion", "--flavor", "onnx", "-C", "max_batch_size=4")
    mlflow.run(*command, "create", *named, *options, NAIAD_URL=server.url)
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps({"inputs": ROWS}))
    assert server.get("/v2/models/cli/config").json()["max_batch_size"] == 4
    server.post("/v2/repository/models/cli/unload", {})
