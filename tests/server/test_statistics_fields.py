"""Every field of the statistics, over both protocols: its name, its place and what it counts.

Source: the protocol's statistics extension.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from google.protobuf.json_format import MessageToDict
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving
from support.grpc_peers import calling
from support.python_models import write_python_model
from support.served_models import LOOK_UP, SUM_AND_DIFFERENCE, write_model

MODEL = ["name", "version", "last_inference", "inference_count", "execution_count", "inference_stats"]
LATER = ["response_stats", "batch_stats", "memory_usage"]
INFERENCE = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]
CACHED = "max_batch_size: 8 response_cache { enable: true }"
BATCHED = "max_batch_size: 8 instance_group [ { count: 1 kind: KIND_CPU } ]"
FAILS = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("no")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("fields")
    write_model(folder / "models", "cached", CACHED, graph=SUM_AND_DIFFERENCE)
    write_model(folder / "models", "plain", BATCHED, versions=(1,), graph=SUM_AND_DIFFERENCE)
    write_model(folder / "models", "look_up", BATCHED, graph=LOOK_UP)
    write_python_model(folder / "models", "fails", FAILS)
    with serving(folder / "log", folder / "models", "--cache-config", "local,size=1048576") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Any]:
    with calling(server.grpc_url) as found:
        yield found


def rows(count: int, value: int = 1) -> list[Any]:
    found = []
    for name in ("INPUT0", "INPUT1"):
        given = triton.InferInput(name, [count, 16], "INT32")
        given.set_data_from_numpy(np.full((count, 16), value, np.int32))
        found.append(given)
    return found


def over_http(server: RunningServer, model: str) -> dict[str, Any]:
    return server.statistics(model)


def over_grpc(client: Any, model: str) -> dict[str, Any]:
    """The same as over HTTP, where a number of 64 bits is no text."""
    (found,) = client.get_inference_statistics(model).model_stats
    return dict(numbers(MessageToDict(found, preserving_proto_field_name=True, **always())))


def always() -> dict[str, bool]:
    """What makes protobuf print fields that have their default, in the releases that there are."""
    known = inspect.signature(MessageToDict).parameters
    name = "always_print_fields_with_no_presence"
    return {name if name in known else "including_default_value_fields": True}


def numbers(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: numbers(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [numbers(part) for part in value]
    texts = ("name", "version", "type")
    return int(value) if isinstance(value, str) and key not in texts else value


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {name: part["count"] for name, part in found["inference_stats"].items()}


@pytest.mark.slow
def test_names_and_their_order(server: RunningServer, client: Any) -> None:
    client.infer("plain", rows(3))
    found = over_http(server, "plain")
    assert list(found) == [*MODEL, *LATER]
    assert list(found["inference_stats"]) == INFERENCE
    assert all(list(part) == ["count", "ns"] for part in found["inference_stats"].values())
    (batch,) = (b for b in found["batch_stats"] if b["batch_size"] == 3)
    assert list(batch) == ["batch_size", "compute_input", "compute_infer", "compute_output"]
    (memory,) = found["memory_usage"]
    assert list(memory) == ["type", "id", "byte_size"]
    assert (memory["type"], memory["id"], memory["byte_size"] > 0) == ("CPU", 0, True)


def test_what_batches_count(server: RunningServer, client: Any) -> None:
    before = over_http(server, "plain")
    for size in (1, 2, 2, 5):
        client.infer("plain", rows(size))
    found = over_http(server, "plain")
    assert found["inference_count"] - before["inference_count"] == 10
    assert found["execution_count"] - before["execution_count"] == 4
    assert found["last_inference"] >= before["last_inference"]
    grown = {name: number - counts(before)[name] for name, number in counts(found).items()}
    parts = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    assert grown == {**dict.fromkeys(INFERENCE, 0), **dict.fromkeys(parts, 4)}
    runs = {b["batch_size"]: b["compute_infer"]["count"] for b in found["batch_stats"]}
    earlier = {b["batch_size"]: b["compute_infer"]["count"] for b in before["batch_stats"]}
    assert {size: number - earlier.get(size, 0) for size, number in runs.items() if size != 3} == {1: 1, 2: 2, 5: 1}
    for batch in found["batch_stats"]:
        assert batch["compute_input"]["count"] == batch["compute_infer"]["count"] == batch["compute_output"]["count"]
    times = found["inference_stats"]
    summed = sum(times[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < summed <= times["success"]["ns"]


def test_what_the_cache_counts(server: RunningServer, client: Any) -> None:
    """Hits are successes and have been in the queue; they are no inference, and nothing was computed for them."""
    for _ in range(3):
        client.infer("cached", rows(2, 7))
    client.infer("cached", rows(2, 8))
    found = over_http(server, "cached")
    wanted = {"success": 4, "fail": 0, "queue": 4, "cache_hit": 2, "cache_miss": 2}
    computed = dict.fromkeys(("compute_input", "compute_infer", "compute_output"), 2)
    assert counts(found) == {**wanted, **computed}
    assert (found["inference_count"], found["execution_count"]) == (4, 2)
    assert all(found["inference_stats"][name]["ns"] > 0 for name in ("success", "cache_hit", "cache_miss"))
    assert [(b["batch_size"], b["compute_infer"]["count"]) for b in found["batch_stats"]] == [(2, 2)]
    assert over_grpc(client, "cached") == found


def test_what_failures_count(server: RunningServer, client: Any) -> None:
    """A run that fails counts as one, though it is no inference. Source: the reference's Python models."""
    given = triton.InferInput("X", [1, 1], "FP32")
    given.set_data_from_numpy(np.ones((1, 1), np.float32))
    for _ in range(2):
        with pytest.raises(InferenceServerException):
            client.infer("fails", [given])
    index = {"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [99]}
    assert server.infer("look_up", {"inputs": [index]}).status == 500
    for model, failed, runs in (("fails", 2, 2), ("look_up", 1, 1)):
        found = over_http(server, model)
        assert counts(found) == {**dict.fromkeys(INFERENCE, 0), "fail": failed}
        assert found["inference_stats"]["fail"]["ns"] > 0
        assert (found["inference_count"], found["execution_count"]) == (0, runs)
        assert found["last_inference"] > 0
        assert [b["compute_infer"]["count"] for b in found["batch_stats"]] == [runs]


def test_every_field_is_the_same_over_both_protocols(server: RunningServer, client: Any) -> None:
    for model in ("plain", "cached", "look_up", "fails"):
        assert over_grpc(client, model) == over_http(server, model)
    everything = server.get("/v2/models/stats").json()["model_stats"]
    named = [(m.name, m.version) for m in client.get_inference_statistics().model_stats]
    assert named == [(m["name"], m["version"]) for m in everything]
    assert {name for name, _ in named} == {"plain", "cached", "look_up", "fails"}


def test_the_statistics_of_what_is_not_there(server: RunningServer, client: Any) -> None:
    text = "requested model 'nope' is not available"
    assert text in server.get("/v2/models/nope/stats").error
    assert server.get("/v2/models/plain/versions/7/stats").status == 400
    for model, version in (("nope", ""), ("plain", "7")):
        with pytest.raises(InferenceServerException):
            client.get_inference_statistics(model, version)
    assert json.loads(server.get("/v2/models/plain/versions/1/stats").body)["model_stats"][0]["name"] == "plain"
