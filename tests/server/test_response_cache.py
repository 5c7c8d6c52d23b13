"""The response cache over HTTP and gRPC: who is answered from it, what is counted, and what is never kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import run_to_end
from support.python_models import Client, client_of, write_python_model

# Counts its executions; a negative number is an error, and 99 is an error that the model answers with.
COUNTS = """
class TritonPythonModel:
    def initialize(self, args):
        self.runs = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            self.runs += 1
            if x.flat[0] == 99:
                answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("no such number")))
                continue
            if x.flat[0] < 0:
                raise ValueError("negative")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + self.runs)]))
        return answers
"""
CACHED = "max_batch_size: 8 response_cache { enable: true }"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    repository = tmp_path / "repository"
    write_python_model(repository, "cached", COUNTS, CACHED)
    write_python_model(repository, "batched", COUNTS, CACHED + " dynamic_batching { preserve_ordering: true }")
    write_python_model(repository, "plain", COUNTS)
    # The others are loaded by the tests that ask them: each has a process.
    more = ("--cache-config", "local,size=1048576", "--model-control-mode", "explicit", "--load-model", "cached")
    with client_of(repository, tmp_path / "log", *more) as found:
        yield found


def ask(client: Client, model: str, value: float) -> float:
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}
    answer = client.server.infer(model, {"inputs": [given]})
    assert answer.status == 200
    return float(answer.json()["outputs"][0]["data"][0])


def counts(client: Client, model: str) -> dict[str, int]:
    found: dict[str, Any] = client.server.statistics(model)
    inner = {name: part["count"] for name, part in found["inference_stats"].items()}
    return inner | {"inferences": found["inference_count"], "executions": found["execution_count"]}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cached", "batched"])
def test_an_equal_request_is_answered_without_the_model_over_both_protocols(client: Client, model: str) -> None:
    client.load(model)
    client.load("plain")
    assert ask(client, model, 1) == 2
    assert ask(client, model, 1) == 2
    assert client.infer(model, 1).tolist() == [[2]]
    assert ask(client, model, 2) == 4
    found = counts(client, model)
    assert (found["success"], found["queue"], found["cache_hit"], found["cache_miss"]) == (4, 4, 2, 2)
    assert (found["inferences"], found["executions"], found["compute_infer"]) == (2, 2, 2)
    page = client.server.metrics_page()
    assert f'nv_cache_num_hits_per_model{{model="{model}",version="1"}} 2' in page
    assert f'nv_cache_num_misses_per_model{{model="{model}",version="1"}} 2' in page
    assert "nv_cache_num_entries 2\n" in page
    assert 'nv_cache_num_hits_per_model{model="plain"' not in page


@pytest.mark.slow
def test_other_shapes_of_the_same_bytes_are_other_requests(client: Client) -> None:
    x = np.array([[1, 1]], np.float32)
    assert client.infer_array("cached", x).shape == (1, 2)
    assert client.infer_array("cached", x.reshape(2, 1)).shape == (2, 1)
    assert counts(client, "cached")["cache_hit"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("value", [-1, 99])
def test_errors_are_not_kept(client: Client, value: float) -> None:
    for _ in range(2):
        with pytest.raises(InferenceServerException):
            client.infer("cached", value)
    assert ask(client, "cached", 1) == 4
    found = counts(client, "cached")
    assert (found["cache_hit"], found["cache_miss"]) == (0, 1)


def test_a_response_without_room_in_the_cache_counts_as_a_miss(tmp_path: Path) -> None:
    write_python_model(tmp_path / "repository", "cached", COUNTS, CACHED)
    with client_of(tmp_path / "repository", tmp_path / "log", "--cache-config", "local,size=200") as client:
        assert [ask(client, "cached", 1) for _ in range(2)] == [2, 3]
        found = counts(client, "cached")
        assert (found["success"], found["cache_hit"], found["cache_miss"]) == (2, 0, 2)
        page = client.server.metrics_page()
    assert 'nv_cache_num_misses_per_model{model="cached",version="1"} 2' in page
    assert "nv_cache_num_entries 0\n" in page


@pytest.mark.slow
def test_a_model_without_it_is_asked_each_time(client: Client) -> None:
    client.load("plain")
    assert [ask(client, "plain", 1) for _ in range(3)] == [2, 3, 4]


@pytest.mark.slow
def test_a_model_that_is_loaded_again_does_not_answer_with_what_it_was(client: Client, tmp_path: Path) -> None:
    assert ask(client, "cached", 1) == 2
    source = tmp_path / "repository" / "cached" / "1" / "model.py"
    source.write_text(source.read_text().replace("x + self.runs", "x * 10"))
    assert client.server.post("/v2/repository/models/cached/load", {}).status == 200
    assert ask(client, "cached", 1) == 10


@pytest.mark.slow
def test_a_server_without_a_cache_says_so_and_serves(tmp_path: Path) -> None:
    write_python_model(tmp_path / "repository", "cached", COUNTS, CACHED)
    with client_of(tmp_path / "repository", tmp_path / "log") as client:
        assert [ask(client, "cached", 1) for _ in range(2)] == [2, 3]
        assert "model 'cached' asks for a response cache, and the server has none" in client.server.log


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cache-config", "local,size=0"], "out of bound"),
        (["--cache-config", "local,sise=5000"], "has no setting 'sise'"),
        (["--cache-config", "local"], "Got local"),
        (["--cache-config", "local,size=5000", "--response-cache-byte-size", "5000"], "incompatible flags"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path, *arguments)
    assert code != 0
    assert text in log
