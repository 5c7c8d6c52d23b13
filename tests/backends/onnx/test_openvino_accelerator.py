"""The accelerator ``openvino`` in earnest: onnxruntime-openvino in an environment of its own, on a real server.

``scripts/test`` makes the environment; NAIAD_TEST_OPENVINO_PYTHON names another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
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


def has_openvino() -> bool:
    """Whether the environment's ONNX Runtime has the provider."""
    code = "import onnxruntime, sys; sys.exit('OpenVINOExecutionProvider' not in onnxruntime.get_available_providers())"
    return Path(PYTHON).is_file() and subprocess.run([PYTHON, "-c", code], check=False, timeout=60).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_openvino(), reason="there is no environment with onnxruntime-openvino"),
]


def write(repository: Path, name: str, more: str) -> None:
    """A model Y = 2 X on the accelerator."""
    onnx_models.double(repository / name / "1" / "model.onnx")
    text = CONFIG + parameters(execution="process", python=PYTHON) + more
    (repository / name / "config.pbtxt").write_text(text)


def ask(client: Client, model: str) -> list[list[float]]:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    return [[float(v) for v in row] for row in client.infer_array(model, x)]


def served(tmp_path: Path, *options: object) -> str:
    """The log of a server that answers a request to ``m`` rightly."""
    environment = {**server_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    log = tmp_path / f"log-{len(list(tmp_path.iterdir()))}"
    with client_of(tmp_path / "models", log, *options, env=environment) as client:
        assert ask(client, "m") == [[2, 4, 6], [8, 10, 12]]
    return log.read_text()


def test_it_is_built_once_checked_kept_and_replaced_when_damaged(tmp_path: Path) -> None:
    write(tmp_path / "models", "m", "instance_group [ { kind: KIND_CPU count: 2 } ]\n")
    log = served(tmp_path, "--accelerator-check")
    assert f"({PYTHON})" in log and "model 'm' runs on onnxruntime" in log
    # One build for two instances, and a comparison with the model as it is without.
    assert log.count(BUILDS) == 1
    compared = [line for line in log.splitlines() if "ms against" in line]
    assert len(compared) == 1 and "model 'm' is " in compared[0] and "openvino" in compared[0], log
    (blob,) = (tmp_path / "cache" / "naiad" / "accelerated").glob("*/*.blob")
    again = served(tmp_path)
    assert BUILDS not in again and REPLACED not in again
    blob.write_bytes(blob.read_bytes()[: blob.stat().st_size // 2])
    replaced = served(tmp_path)
    assert replaced.count(f"{REPLACED}{blob.name} has changed), it is built anew in ") == 1
    assert REPLACED not in served(tmp_path)


@pytest.mark.skipif(len(CORES) < 2, reason=WHY_NOT)
def test_its_threads_are_on_the_cores_of_the_policy(tmp_path: Path) -> None:
    write(tmp_path / "models", "m", group_on(CORES[1]))
    with client_of(tmp_path / "models", tmp_path / "log", *POLICIES) as client:
        assert ask(client, "m") == [[2, 4, 6], [8, 10, 12]]
        (worker,) = client.children()
        assert set(cores_of_threads(worker.pid).values()) == {str(CORES[1])}
