"""Threads of OpenBLAS sleep in the processes of models, unless the environment says how long they spin."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from naiad.processes.process_group import GroupedProcess
from naiad.testing import serving
from support.python_models import Client, write_python_model

VARIABLE = "OPENBLAS_THREAD_TIMEOUT"
# The processor time of all threads in the 0.3 s after the import of numpy.
SPINS = """
import time
import numpy
begin = time.process_time()
time.sleep(0.3)
print(time.process_time() - begin)
"""
SAYS = """
class TritonPythonModel:
    def execute(self, requests):
        said = np.array([[float(os.environ["OPENBLAS_THREAD_TIMEOUT"])]], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", said)]) for request in requests]
"""


def output(tmp_path: Path, code: str, env: dict[str, str] | None) -> str:
    with (tmp_path / "out").open("w+") as file:
        process = GroupedProcess([sys.executable, "-c", code], stdout=file.fileno(), env=env)
        assert process.wait(60) == 0
        file.seek(0)
        return file.read().strip()


@pytest.mark.parametrize(("given", "wanted"), [({}, "16"), ({VARIABLE: "20"}, "20")])
def test_what_the_environment_says_stays(tmp_path: Path, given: dict[str, str], wanted: str) -> None:
    code = f"import os; print(os.environ['{VARIABLE}'])"
    env = {name: value for name, value in os.environ.items() if name != VARIABLE} | given
    assert output(tmp_path, code, env) == wanted


def test_the_environment_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert output(tmp_path, f"import os; print(os.environ['{VARIABLE}'])", None) == "16"
    assert VARIABLE not in os.environ


def test_no_thread_spins_after_the_import_of_numpy(tmp_path: Path) -> None:
    assert float(output(tmp_path, SPINS, None)) < 0.02


@pytest.mark.slow
def test_the_process_of_a_model(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "says", SAYS)
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        client = Client(server)
        assert client.infer_array("says", np.ones((1, 1), np.float32)) == 16
        client.grpc.close()
