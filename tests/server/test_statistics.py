"""What counts as a request: over both protocols alike, and in the statistics as in the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving, wait_until
from support.python_models import waits_for, write_python_model
from support.served_models import identity, numbers, write_model

DELAY_S = 0.3


@pytest.fixture(scope="module")
def go_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file for which the model ``waits`` waits."""
    return tmp_path_factory.mktemp("waits") / "go on"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, go_on: Path) -> Iterator[RunningServer]:
    """A server with a model for each test, since counts are compared."""
    folder = tmp_path_factory.mktemp("statistics")
    for name in ("refuses", "same"):
        write_model(folder / "models", name, identity(max_batch_size=4))
    write_model(folder / "models", "slow", identity(max_batch_size=4, delay_ms=DELAY_S * 1000))
    write_python_model(folder / "models", "waits", waits_for(go_on))
    with serving(folder / "log", folder / "models") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[tritonclient.grpc.InferenceServerClient]:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as found:
        yield found


def tensor(shape: list[int], name: str = "INPUT0", datatype: str = "INT32") -> tritonclient.grpc.InferInput:
    found = tritonclient.grpc.InferInput(name, shape, datatype)
    found.set_data_from_numpy(np.ones(shape, np.int32 if datatype == "INT32" else np.float32))
    return found


def failures(server: RunningServer, model: str) -> dict[str, float]:
    """The failures of the metrics by reason."""
    page = server.metrics_page()
    lines = [x for x in page.splitlines() if x.startswith("nv_inference_request_failure") and f'"{model}"' in x]
    return {line.split('reason="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


@pytest.mark.slow
def test_a_request_that_is_refused_is_no_inference_of_its_model(server: RunningServer, client: Any) -> None:
    refused = [
        numbers([1] * 5, [5, 1]),
        numbers([1, 2], [1, 3]),
        {"inputs": []},
        {**numbers([1], [1, 1]), "outputs": [{"name": "NONE"}]},
        b"{",
    ]
    for request in refused:
        assert 400 <= server.infer("refuses", request).status < 500
    for wrong in (tensor([5, 1]), tensor([1, 1], "NONE"), tensor([1, 1], datatype="FP32")):
        with pytest.raises(InferenceServerException):
            client.infer("refuses", [wrong])
    found = server.statistics("refuses")
    assert (found["inference_count"], found["execution_count"], found["last_inference"]) == (0, 0, 0)
    assert {part["count"] for part in found["inference_stats"].values()} == {0}
    assert (found["batch_stats"], found["response_stats"], found["memory_usage"]) == ([], {}, [])
    assert failures(server, "refuses") == {"OTHER": 0, "REJECTED": 0, "CANCELED": 0, "BACKEND": 0}


def test_a_request_that_is_given_up_in_the_queue_counts_once(server: RunningServer, client: Any, go_on: Path) -> None:
    done: list[object] = []
    given = [tensor([rows, 1], "X", "FP32") for rows in (1, 2)]
    client.async_infer("waits", given[:1], lambda result, error: done.append(error))
    # A call may overtake another one while their channel connects.
    server.wait_in_flight(1)
    waiting = client.async_infer("waits", given[1:], lambda result, error: done.append(error))
    server.wait_pending("waits", 1)
    waiting.cancel()
    server.wait_pending("waits", 0)
    go_on.touch()
    wait_until(lambda: len(done) == 2, 10, "both answers")
    found = server.statistics("waits")
    stats = found["inference_stats"]
    assert (stats["success"]["count"], stats["fail"]["count"], stats["queue"]["count"]) == (1, 1, 1)
    assert [b["batch_size"] for b in found["batch_stats"]] == [1]
    assert failures(server, "waits") == {"OTHER": 0, "REJECTED": 0, "CANCELED": 1, "BACKEND": 0}


@pytest.mark.slow
def test_waiting_is_queue_time_and_running_is_not(server: RunningServer, client: Any) -> None:
    """Two at once on one instance: the second waits for as long as the first one runs."""
    done: list[object] = []
    for _ in range(2):
        client.async_infer("slow", [tensor([1, 1])], lambda result, error: done.append(error))
    wait_until(lambda: len(done) == 2, 10, "both answers")
    assert done == [None, None]
    stats = server.statistics("slow")["inference_stats"]
    assert 0.8 * DELAY_S <= stats["queue"]["ns"] / 1e9 <= stats["compute_infer"]["ns"] / 1e9
    assert stats["compute_infer"]["ns"] / 1e9 >= 2 * DELAY_S
    parts = sum(stats[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert parts <= stats["success"]["ns"]


def test_both_protocols_say_the_same(server: RunningServer, client: Any) -> None:
    client.infer("same", [tensor([3, 1])])
    assert server.infer("same", numbers([1], [1, 1])).status == 200
    over_http = server.statistics("same")
    (over_grpc,) = client.get_inference_statistics("same").model_stats
    assert (over_grpc.inference_count, over_grpc.execution_count) == (4, 2)
    assert over_grpc.last_inference == over_http["last_inference"] > 0
    for name, part in over_http["inference_stats"].items():
        found = getattr(over_grpc.inference_stats, name)
        assert (found.count, found.ns) == (part["count"], part["ns"]), name
    assert [b.batch_size for b in over_grpc.batch_stats] == [b["batch_size"] for b in over_http["batch_stats"]]
