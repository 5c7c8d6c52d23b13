"""A worker is killed during a request: the caller may retry, readiness says so, and the worker comes back by itself."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import HttpResponse, wait_until
from support.python_models import DOUBLES, Client, client_of, write_python_model

# Runs for as many seconds as its input says; says beforehand which process it is.
RUNS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.flat[0]:
                with open(os.path.join(os.path.dirname(__file__), "running"), "w") as file:
                    file.write(f"{os.getpid()}.")
            time.sleep(float(x.flat[0]))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)]))
        return answers
"""


def over_http(client: Client, seconds: float) -> HttpResponse:
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [seconds]}
    return client.server.request("POST", "/v2/models/runs/infer", json.dumps({"inputs": [given]}).encode())


def over_grpc(client: Client, seconds: float) -> str:
    """The error that a caller gets, "" for none."""
    try:
        client.infer("runs", seconds)
    except InferenceServerException as error:
        return str(error)
    return ""


def readiness(client: Client) -> list[bool]:
    """The answers to every question about it."""
    paths = ("/v2/health/ready", "/v2/models/runs/ready")
    asked = [client.server.request("GET", path).status == 200 for path in paths]
    return [*asked, client.grpc.is_server_ready(), client.grpc.is_model_ready("runs")]


def running_worker(model: Path) -> psutil.Process:
    """The process that runs a request now."""
    file = model / "1" / "running"
    wait_until(lambda: file.exists() and file.read_text().endswith("."), 5, "a request runs")
    found = psutil.Process(int(file.read_text().rstrip(".")))
    file.unlink()
    return found


# It is measured how soon readiness says no and yes.
@pytest.mark.slow
@pytest.mark.serial
def test_a_worker_that_is_killed_during_a_request(tmp_path: Path) -> None:
    model = write_python_model(tmp_path / "models", "runs", RUNS)
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    with client_of(tmp_path / "models", tmp_path / "log") as client, ThreadPoolExecutor(8) as pool:
        back_s: list[float] = []
        for ask in (over_http, over_grpc):
            assert readiness(client) == [True] * 4
            running = pool.submit(ask, client, 60)
            worker = running_worker(model)
            queued = [pool.submit(over_grpc, client, 0) for _ in range(5)]
            worker.kill()
            killed_at = time.monotonic()
            wait_until(lambda: readiness(client) == [False] * 4, 1.0, "readiness says no")
            answer = running.result(10)
            assert client.infer("doubles", 4)[0, 0] == 8
            wait_until(lambda: readiness(client) == [True] * 4, 15, "readiness says yes")
            back_s.append(time.monotonic() - killed_at)
            if isinstance(answer, HttpResponse):
                assert answer.status == 503
                answer = answer.error
            else:
                assert "StatusCode.UNAVAILABLE" in answer
            assert "Stub process 'runs_0_0' is not healthy." in answer
            assert "killed by SIGKILL" in answer
            # Those that waited have lost nothing.
            assert [one.result(10) for one in queued] == [""] * 5
            assert over_grpc(client, 0) == ""
        # A round that another process of this machine held up does not count.
        assert min(back_s) < 2.0
