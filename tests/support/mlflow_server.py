"""A real MLflow server with logged models, run by the Python that ``NAIAD_MLFLOW_PYTHON`` names."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import socket
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from naiad.testing.waiting import wait_until
from support.source_tree import ROOT

PYTHON = os.environ.get("NAIAD_MLFLOW_PYTHON", "")
START_S = 240
BUCKET = "models"
PLUGIN = ROOT / "packages" / "mlflow-naiad"
_LOG = Path(__file__).with_name("mlflow_models.py")


@dataclass(frozen=True, slots=True)
class Mlflow:
    """A server with models.

    Attributes:
        environment: of processes that use it and S3.
        flavors: the names of the registered models.
    """

    url: str
    environment: Mapping[str, str]
    flavors: frozenset[str]

    def run(self, *arguments: str, check: bool = True, **variables: str) -> str:
        """What Python with MLflow and the plugin prints."""
        done = subprocess.run(
            [PYTHON, *arguments],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr


def _installed_plugin(folder: Path) -> str:
    """A path on which Python finds the plugin as an installed package, with its entry points."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    about = folder / f"mlflow_naiad-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mlflow-naiad\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n{name} = {value}"
        for group, all_ in project["entry-points"].items()
        for name, value in all_.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    # What Naiad itself stands on, from the environment of the tests.
    ours = str(Path(str(importlib.metadata.distribution("orjson").locate_file(""))))
    return os.pathsep.join([str(folder), str(PLUGIN / "src"), str(ROOT / "src"), ours])


@contextlib.contextmanager
def _s3() -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
        yield url
    finally:
        server.stop()


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[Mlflow]:
    """An MLflow server whose artefacts lie in S3: half of them it serves itself, half are read from S3 directly."""
    pytest.importorskip("obstore")
    with _s3() as s3, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        url = f"http://127.0.0.1:{port}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NAIAD_", "AWS_"))}
        environment |= {
            "NAIAD_MLFLOW_ALL": os.environ.get("NAIAD_MLFLOW_ALL", ""),
            "MLFLOW_TRACKING_URI": url,
            "MLFLOW_S3_ENDPOINT_URL": s3,
            "AWS_ENDPOINT_URL": s3,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYTHONPATH": _installed_plugin(folder / "plugin"),
            "GIT_PYTHON_REFRESH": "quiet",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            # Jobs are not used, and their start takes seconds.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        command = [PYTHON, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
        store = [
            "--backend-store-uri",
            f"sqlite:///{folder}/db.sqlite",
            "--artifacts-destination",
            f"s3://{BUCKET}/served",
        ]
        with (folder / "mlflow.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *store], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait_until(lambda: _answers(process, url), START_S, "MLflow answers")
            found = Mlflow(url, environment, frozenset())
            printed = found.run(str(_LOG), f"s3://{BUCKET}/direct")
            yield Mlflow(url, environment, frozenset(printed.split()))
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    import psutil

    family = [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else [process]
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    assert process.poll() is None, "MLflow ended"
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
