"""``Server-Timing``: where the time of a request went, for those who ask for it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.testing import RunningServer, serving
from support.served_models import identity, numbers, write_model

WANTED = ("want-server-timing", "1")
DELAYED = "dynamic_batching { max_queue_delay_microseconds: 60000 preferred_batch_size: [ 2 ] }"
STEP = 'step { model_name: "slow" model_version: -1 input_map { key: "INPUT0" value: "%s" } %s }'
TWICE = f"""
platform: "ensemble"
max_batch_size: 4
input [ {{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }} ]
ensemble_scheduling {{
  {STEP % ("INPUT0", 'output_map { key: "OUTPUT0" value: "between" }')}
  {STEP % ("between", 'output_map { key: "OUTPUT0" value: "OUTPUT0" }')}
}}
"""
STAGES = ["read", "queue", "batch", "input", "infer", "output", "total"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("timing")
    write_model(folder / "models", "inline", identity(max_batch_size=4))
    write_model(folder / "models", "slow", identity(max_batch_size=4, delay_ms=40))
    write_model(folder / "models", "delayed", identity(max_batch_size=4, delay_ms=1, extra=DELAYED))
    write_model(folder / "models", "cached", identity(max_batch_size=4, extra="response_cache { enable: true }"))
    write_model(folder / "models", "twice", TWICE)
    options = ("--grpc-infer-response-compression-level=low", "--cache-config=local,size=1048576")
    with serving(folder / "log", folder / "models", *options) as running:
        yield running


def times(text: str) -> dict[str, float]:
    """The durations by their names."""
    assert re.fullmatch(r"[a-z]+;dur=\d+\.\d{3}(, [a-z]+;dur=\d+\.\d{3})*", text), text
    return {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", text)}


def ask(server: RunningServer, model: str, *headers: tuple[str, str], rows: int = 1) -> dict[str, float] | None:
    body = json.dumps(numbers([1] * rows, [rows, 1])).encode()
    answer = server.request("POST", f"/v2/models/{model}/infer", body, [WANTED, *headers])
    assert answer.status == 200
    found = answer.headers.get("server-timing")
    return None if found is None else times(found)


def test_stages_add_up(server: RunningServer) -> None:
    found = ask(server, "slow")
    assert found is not None
    assert list(found) == STAGES
    assert 40 <= found["infer"] <= found["total"]
    assert found["batch"] == 0
    stages = sum(ms for name, ms in found.items() if name != "total")
    assert stages == pytest.approx(found["total"], abs=0.01)


def test_the_wait_for_an_instance_is_the_queue(server: RunningServer) -> None:
    found: list[dict[str, float] | None] = []
    threads = [threading.Thread(target=lambda: found.append(ask(server, "slow", rows=4))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Full batches run one after the other.
    longest = max(one["queue"] for one in found if one is not None)
    assert longest >= 40
    assert all(one is not None and one["batch"] == 0 for one in found)


def test_the_wait_for_others_is_the_batch(server: RunningServer) -> None:
    found = ask(server, "delayed")
    assert found is not None
    assert found["batch"] >= 55
    assert found["queue"] < 55


@pytest.mark.parametrize(("model", "stage"), [("inline", "infer"), ("cached", "cache")])
def test_a_request_without_a_batch_has_its_parts(server: RunningServer, model: str, stage: str) -> None:
    # The second response is the cached one.
    found = [ask(server, model) for _ in range(2)][1]
    assert found is not None
    assert list(found) == ["read", stage, "total"]
    assert found["read"] + found[stage] == pytest.approx(found["total"], abs=0.01)


def test_an_ensemble_has_the_times_of_its_steps(server: RunningServer) -> None:
    for _ in range(2):
        found = ask(server, "twice")
        assert found is not None
        assert list(found) == STAGES
        assert 80 <= found["infer"] <= found["total"]


@pytest.mark.parametrize("value", ["0", "false", ""])
def test_others_have_no_times(server: RunningServer, value: str) -> None:
    body = json.dumps(numbers([1], [1, 1])).encode()
    for headers in ([], [("want-server-timing", value)]):
        answer = server.request("POST", "/v2/models/slow/infer", body, headers)
        assert (answer.status, "server-timing" in answer.headers) == (200, False)


def test_an_error_has_its_times_too(server: RunningServer) -> None:
    answer = server.request("POST", "/v2/models/slow/infer", b"{}", [WANTED])
    assert (answer.status, "server-timing" in answer.headers) == (400, False)


def test_compressed_responses_have_them(server: RunningServer) -> None:
    body = json.dumps(numbers([1] * 4, [4, 1])).encode()
    answer = server.request("POST", "/v2/models/slow/infer", body, [WANTED, ("accept-encoding", "gzip")])
    assert answer.headers["content-encoding"] == "gzip"
    assert times(answer.headers["server-timing"])["infer"] >= 40


def test_tensors_behind_json_arrive_whole(server: RunningServer) -> None:
    wide = np.arange(1 << 18, dtype=np.int32).reshape(1, -1)
    head = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": list(wide.shape)}]}
    head["inputs"][0]["parameters"] = {"binary_data_size": wide.nbytes}
    head["parameters"] = {"binary_data_output": True}
    raw = json.dumps(head).encode()
    headers = [WANTED, ("Inference-Header-Content-Length", str(len(raw)))]
    for _ in range(2):
        answer = server.request("POST", "/v2/models/slow/infer", raw + wide.tobytes(), headers)
        size = int(answer.headers["inference-header-content-length"])
        assert answer.body[size:] == wide.tobytes()
        assert times(answer.headers["server-timing"])["infer"] >= 40


def grpc_times(address: str, compression: grpc.Compression) -> tuple[dict[str, str], int]:
    message = service_pb2.ModelInferRequest(model_name="slow")
    message.inputs.add(name="INPUT0", datatype="INT32", shape=[1, 100]).contents.int_contents.extend(range(100))
    with grpc.insecure_channel(address, compression=compression) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer, call = stub.ModelInfer.with_call(message, timeout=20, metadata=[WANTED])
        assert len(answer.raw_output_contents[0]) == 400
        plain = stub.ModelInfer.with_call(message, timeout=20)[1]
        assert "server-timing" not in dict(plain.trailing_metadata())
        return dict(call.trailing_metadata()), answer.id == ""


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_grpc_has_them_in_the_trailing_metadata(server: RunningServer, compression: grpc.Compression) -> None:
    trailing, _ = grpc_times(server.grpc_url, compression)
    found = times(trailing["server-timing"])
    assert list(found) == STAGES
    assert found["infer"] >= 40


@pytest.mark.slow
def test_grpcio_has_them_too(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "slow", identity(max_batch_size=4, delay_ms=40))
    with serving(tmp_path / "log", tmp_path / "models", "--grpc-transport=grpcio") as running:
        assert times(grpc_times(running.grpc_url, grpc.Compression.NoCompression)[0]["server-timing"])["infer"] >= 40
