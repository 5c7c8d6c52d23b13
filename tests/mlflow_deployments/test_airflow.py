"""The provider for Airflow: its example DAG under the real ``airflow dags test``, with a real MLflow and server."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from naiad.client import Client
from naiad.client.mlflow import Deployment, deploy, deploy_canary
from naiad.testing.server import RunningServer, serving
from support.mlflow_server import PYTHON, Mlflow
from support.source_tree import ROOT

AIRFLOW = os.environ.get("NAIAD_AIRFLOW_PYTHON", "")
PROVIDER = ROOT / "packages" / "airflow-provider-naiad" / "src"
X = np.ones((1, 4), np.float32)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not AIRFLOW, reason="NAIAD_AIRFLOW_PYTHON names no Python with apache-airflow 3"),
    pytest.mark.skipif(not PYTHON, reason="NAIAD_MLFLOW_PYTHON names no Python with mlflow, boto3, onnx, onnxruntime"),
]


@pytest.fixture(scope="module")
def server(mlflow: Mlflow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "models").mkdir()
    arguments = ("--model-repository", folder / "models", "--model-control-mode", "explicit")
    mirror = ("--model-repository-mirror", folder / "mirror")
    environment = {name: value for name, value in mlflow.environment.items() if name != "PYTHONPATH"}
    with serving(folder / "log.txt", *arguments, *mirror, env=environment) as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Airflow, with its database."""
    return tmp_path_factory.mktemp("airflow")


# What the triggerer calls when a user stops a deferred task.
KILL = """
import asyncio
from naiad_provider.triggers import CanaryTrigger
asyncio.run(CanaryTrigger("naiad_default", "stopped", 2, 1, [], 1, 0, 1, "").on_kill())
"""


def airflow(
    home: Path, mlflow: Mlflow, server: RunningServer, *arguments: str, metrics_port: int = 0
) -> tuple[int, str]:
    return airflow_python(home, mlflow, server, "-m", "airflow", *arguments, metrics_port=metrics_port)


def airflow_python(
    home: Path, mlflow: Mlflow, server: RunningServer, *arguments: str, metrics_port: int = 0
) -> tuple[int, str]:
    port = metrics_port or server.metrics
    connection = f"naiad://127.0.0.1:{server.http}?metrics_url=http%3A%2F%2F127.0.0.1%3A{port}%2Fmetrics"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("NAIAD_", "PYTHON"))},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROVIDER / "naiad_provider" / "example_dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW_CONN_NAIAD_DEFAULT": connection,
        "MLFLOW_TRACKING_URI": mlflow.url,
        # What Naiad stands on comes after Airflow's own packages.
        "PYTHONPATH": os.pathsep.join([str(PROVIDER), str(ROOT / "src")]),
    }
    done = subprocess.run(
        [AIRFLOW, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def callers(server: RunningServer) -> Iterator[list[str]]:
    """Requests that name no version, one after another; yields the versions that answered."""
    stop = threading.Event()
    versions: list[str] = []

    def call() -> None:
        with Client(server.url) as client:
            while not stop.wait(0.01):
                versions.append(client.infer("times", {"x": X}).version)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield versions
    finally:
        stop.set()
        thread.join()


def test_a_canary_is_rolled_back_and_another_promoted(mlflow: Mlflow, server: RunningServer, home: Path) -> None:
    code, text = airflow(home, mlflow, server, "db", "migrate")
    assert code == 0, text
    with Client(server.url) as client:
        deploy(client, Deployment("times", ("models:/times/1",)))
        run = ("dags", "test", "naiad_canary", "-c")
        # Nobody listens there.
        code, text = airflow(home, mlflow, server, *run, '{"watch_s": 60}', metrics_port=1)
        assert "was rolled back to 1: the metrics cannot be read" in text, text
        with callers(server) as versions:
            # No version is zero times as slow as another.
            code, text = airflow(home, mlflow, server, *run, '{"watch_s": 60, "min_requests": 5, "max_slowdown": 0.0}')
            assert "was rolled back to 1: nv_inference_request_duration_us" in text, text
            assert "2" in versions
            assert client.infer("times", {"x": X}).version == "1"
            index = {entry["version"]: entry["state"] for entry in client.index()}
            assert (index["1"], index["2"]) == ("READY", "UNAVAILABLE")

            code, text = airflow(
                home, mlflow, server, *run, '{"watch_s": 4, "min_requests": 5, "max_slowdown": 1000.0}'
            )
            assert code == 0 and "version 2 of 'times' has all requests" in text, text
            result = client.infer("times", {"x": X})
        assert (result.version, result["y"].ravel().tolist()) == ("2", [3, 3, 3, 3])


def test_a_deferred_task_that_is_stopped_gives_the_requests_back(
    mlflow: Mlflow, server: RunningServer, home: Path
) -> None:
    with Client(server.url) as client:
        deploy(client, Deployment("stopped", ("models:/times/1",)))
        deploy_canary(client, Deployment("stopped", ("models:/times/2",)), 20)
        assert client.routes("stopped")["split"] == {"1": 80, "2": 20}
        code, text = airflow_python(home, mlflow, server, "-c", KILL)
        assert code == 0, text
        assert client.routes("stopped")["split"] == {"1": 1}
        index = {entry["version"]: entry["state"] for entry in client.index() if entry["name"] == "stopped"}
        assert (index["1"], index["2"]) == ("READY", "UNAVAILABLE")
