"""A model is busy for long: who waits behind it is told at its deadline, and a full queue says so at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import HttpResponse, wait_until
from support.python_models import Client, client_of, write_python_model

# Runs until a file "free" is beside the model.
WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        folder = os.path.dirname(__file__)
        open(os.path.join(folder, "running"), "w").close()
        while not os.path.exists(os.path.join(folder, "free")):
            time.sleep(0.005)
        inputs = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in inputs]
"""
BATCHING = """dynamic_batching { preferred_batch_size: [ 1 ] default_queue_policy {
    timeout_action: REJECT allow_timeout_override: true max_queue_size: 2 } }"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_python_model(tmp_path / "repository", "waits", WAITS, f"max_batch_size: 8 {BATCHING}")
    with client_of(tmp_path / "repository", tmp_path / "log") as found:
        yield found


def folder(tmp_path: Path) -> Path:
    return tmp_path / "repository" / "waits" / "1"


def ask(client: Client, **parameters: int) -> HttpResponse:
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    body = json.dumps({"inputs": [given], "parameters": parameters}).encode()
    return client.server.request("POST", "/v2/models/waits/infer", body)


@pytest.mark.slow
def test_a_deadline_holds_while_the_model_is_busy(client: Client, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        first: Future[HttpResponse] = pool.submit(ask, client)
        wait_until((folder(tmp_path) / "running").exists, 10, "the model runs")
        late = ask(client, timeout=100_000)
        assert (late.status, late.error) == (503, "Request timeout expired")
        with pytest.raises(InferenceServerException, match="Request timeout expired") as raised:
            client.infer("waits", 1, timeout=1000)
        assert raised.value.status() == "StatusCode.UNAVAILABLE"

        waiting = [pool.submit(ask, client) for _ in range(2)]
        client.server.wait_pending("waits", 2)
        full = ask(client)
        assert (full.status, full.error) == (503, "Exceeds maximum queue size")
        (folder(tmp_path) / "free").touch()
        assert first.result().status == 200
        assert [answer.result().status for answer in waiting] == [200, 200]
    counted = client.server.statistics("waits")["inference_stats"]
    assert (counted["success"]["count"], counted["fail"]["count"]) == (3, 3)
