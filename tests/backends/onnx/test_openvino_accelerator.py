"""The accelerator ``openvino`` in earnest: onnxruntime-openvino in an environment of its own, on a real server.

``scripts/test`` makes the environment; NAIAD_TEST_OPENVINO_PYTHON names another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from naiad.testing import server_environment
from support import onnx_models
from support.config_texts import parameters
from support.core_policies import CORES, POLICIES, WHY_NOT, cores_of_threads, group_on
from support.python_models import Client, client_of

ENVIRONMENT = Path(sys.prefix) / "onnxruntime-openvino" / "bin" / "python"
PYTHON = os.environ.get("NAIAD_TEST_OPENVINO_PYTHON", str(ENVIRONMENT))
CONFIG = """backend: "onnxruntime" max_batch_size: 8
optimization { execution_accelerators { cpu_execution_accelerator : [ {name : "openvino"}] } }
"""
BUILDS = "OpenVINO builds what it runs, once; it is kept in "
REPLACED = "what OpenVINO had built cannot be used ("
LOAD_S = 200.0
"""The longest start of a server whose models import a framework in processes, on a busy machine, in seconds."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def openvino() -> None:
    """Skip where the environment's ONNX Runtime lacks the provider."""
    code = "import onnxruntime, sys; sys.exit('OpenVINOExecutionProvider' not in onnxruntime.get_available_providers())"
    if not Path(PYTHON).is_file() or subprocess.run([PYTHON, "-c", code], check=False, timeout=LOAD_S).returncode:
        pytest.skip("there is no environment with onnxruntime-openvino")


def write(repository: Path, name: str, more: str) -> None:
    """A model Y = 2 X on the accelerator."""
    onnx_models.double(repository / name / "1" / "model.onnx")
    text = CONFIG + parameters(execution="process", python=PYTHON) + more
    (repository / name / "config.pbtxt").write_text(text)


def ask(client: Client, model: str) -> list[list[float]]:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    return [[float(v) for v in row] for row in client.infer_array(model, x)]


@contextmanager
def serving(tmp_path: Path, *options: object) -> Iterator[Client]:
    """A client of a server with a folder of its own for what is built."""
    environment = {**server_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    log = tmp_path / f"log-{len(list(tmp_path.iterdir()))}"
    with client_of(tmp_path / "models", log, *options, env=environment, start_s=LOAD_S) as client:
        yield client


def loaded(client: Client) -> str:
    """What the log says of a load of ``m``, which then answers a request rightly."""
    before = len(client.server.log)
    # Over gRPC, where a load may take as long as it needs.
    client.grpc.load_model("m")
    assert ask(client, "m") == [[2, 4, 6], [8, 10, 12]]
    said = client.server.log[before:]
    client.grpc.unload_model("m")
    return said


def test_it_is_built_once_kept_and_replaced_when_damaged(tmp_path: Path) -> None:
    write(tmp_path / "models", "m", "instance_group [ { kind: KIND_CPU count: 2 } ]\n")
    with serving(tmp_path, "--model-control-mode=explicit") as client:
        log = loaded(client)
        # One build for two instances.
        assert log.count(BUILDS) == 1
        assert f"({PYTHON})" in log and "model 'm' runs on onnxruntime" in log
        (blob,) = (tmp_path / "cache" / "naiad" / "accelerated").glob("*/*.blob")
        # Another file in its place: a process that ends just now may have mapped this one.
        half = tmp_path / "half"
        half.write_bytes(blob.read_bytes()[: blob.stat().st_size // 2])
        half.replace(blob)
        replaced = loaded(client)
        assert replaced.count(f"{REPLACED}{blob.name} has changed), it is built anew in ") == 1


def test_a_later_start_finds_what_was_built_and_compares_it(tmp_path: Path) -> None:
    write(tmp_path / "models", "m", "instance_group [ { kind: KIND_CPU } ]\n")
    with serving(tmp_path, "--model-control-mode=explicit") as client:
        assert BUILDS in loaded(client)
    with serving(tmp_path, "--accelerator-check") as client:
        log = client.server.log
        assert BUILDS not in log and REPLACED not in log
        compared = [line for line in log.splitlines() if "ms against" in line]
        assert len(compared) == 1 and "model 'm' is " in compared[0] and "openvino" in compared[0], log


@pytest.mark.skipif(len(CORES) < 2, reason=WHY_NOT)
def test_its_threads_are_on_the_cores_of_the_policy(tmp_path: Path) -> None:
    write(tmp_path / "models", "m", group_on(CORES[1]))
    with serving(tmp_path, *POLICIES) as client:
        assert ask(client, "m") == [[2, 4, 6], [8, 10, 12]]
        (worker,) = client.children()
        assert set(cores_of_threads(worker.pid).values()) == {str(CORES[1])}
