"""Large JSON goes through a process of its own and means the same as small JSON; nobody else waits for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from naiad.frontends.http.json_worker.pool import LARGE_JSON_BYTES
from naiad.testing import HttpResponse, RunningServer, serving, wait_until

CONFIG = """
backend: "identity"
max_batch_size: 4
input {{ name: "X" data_type: TYPE_{kind} dims: [ -1 ] }}
output {{ name: "Y" data_type: TYPE_{kind} dims: [ -1 ] }}
"""
TYPES = ("FP32", "INT64", "UINT8", "BOOL", "STRING", "FP64")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("large")
    for kind in TYPES:
        (folder / "models" / kind / "1").mkdir(parents=True)
        (folder / "models" / kind / "config.pbtxt").write_text(CONFIG.format(kind=kind))
    with serving(folder / "log", "--model-repository", folder / "models") as running:
        yield running
        assert "Traceback" not in running.log


def ask(server: RunningServer, kind: str, request: Any, extra: bytes = b"", **lines: str) -> HttpResponse:
    body = json.dumps(request).encode()
    headers = {"Inference-Header-Content-Length": str(len(body))} if extra else {}
    return server.request("POST", f"/v2/models/{kind}/infer", body + extra, headers=tuple({**headers, **lines}.items()))


def tensor(kind: str, data: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "X",
        "datatype": "BYTES" if kind == "STRING" else kind,
        "shape": [1, len(data)],
        "data": data,
        **more,
    }


def values(kind: str, count: int) -> list[Any]:
    if kind == "STRING":
        return [f"ü{n}" for n in range(count)]
    if kind == "BOOL":
        return [n % 3 == 0 for n in range(count)]
    if kind == "UINT8":
        return [n % 256 for n in range(count)]
    return [n + 0.5 for n in range(count)] if kind.startswith("FP") else list(range(-5, count - 5))


@pytest.mark.parametrize("kind", TYPES)
def test_it_comes_back_as_it_was(server: RunningServer, kind: str) -> None:
    data = values(kind, 400_000)
    request = {"id": "7", "inputs": [tensor(kind, data)], "unknown": {"a": [1]}}
    assert len(json.dumps(request)) > LARGE_JSON_BYTES
    answer = ask(server, kind, request)
    assert (answer.status, answer.type) == (200, "application/json")
    found = answer.json()
    assert found["id"] == "7"
    (output,) = found["outputs"]
    assert (output["shape"], output["data"]) == ([1, len(data)], data)


def test_binary_outputs_and_binary_inputs_beside_it(server: RunningServer) -> None:
    data = values("FP32", 300_000)
    wanted = {"outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}
    answer = ask(server, "FP32", {"inputs": [tensor("FP32", data)], **wanted})
    length = int(answer.headers["inference-header-content-length"])
    assert np.frombuffer(answer.body[length:], np.float32).tolist() == data
    raw = np.array(data, np.float32)
    given = {"name": "X", "datatype": "FP32", "shape": [1, raw.size], "parameters": {"binary_data_size": raw.nbytes}}
    answer = ask(server, "FP32", {"inputs": [given]}, raw.tobytes())
    assert answer.json()["outputs"][0]["data"] == data


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: r["inputs"][0]["data"].append("x"), "found 400001"),
        (lambda r: r["inputs"][0]["data"].__setitem__(5, "x"), 'FP32 takes numbers, found "x" at element 5'),
        (lambda r: r["inputs"][0].pop("name"), "has no member 'name'"),
        (lambda r: r["inputs"][0].__setitem__("name", "NOPE"), "NOPE"),
        (lambda r: r["inputs"][0].__setitem__("datatype", "FP64"), "FP64"),
        (lambda r: r.pop("inputs"), "has no member 'inputs'"),
        (lambda r: r["inputs"][0].update(parameters={"binary_data_size": 4}), "must set only one"),
        (lambda r: r.__setitem__("id", 7), "expected a string"),
    ],
)
def test_what_is_wrong_is_said_as_for_small_json(server: RunningServer, change: Any, text: str) -> None:
    request: dict[str, Any] = {"inputs": [tensor("FP32", values("FP32", 400_000))], "padding": "x" * LARGE_JSON_BYTES}
    change(request)
    answer = ask(server, "FP32", request)
    assert answer.status == 400
    assert text in answer.error


def test_broken_json(server: RunningServer) -> None:
    body = b'{"inputs": [' + b"1," * LARGE_JSON_BYTES
    answer = server.request("POST", "/v2/models/FP32/infer", body)
    assert answer.status == 400
    assert "failed to parse the request JSON buffer" in answer.error
    answer = server.request("POST", "/v2/models/nope/infer", body)
    assert answer.status == 404


def helpers(server: RunningServer) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    running = [c for c in children if c.status() != psutil.STATUS_ZOMBIE]
    return [c for c in running if "naiad.frontends.http.json_worker.program" in c.cmdline()]


@pytest.mark.slow
def test_its_process_may_die(server: RunningServer) -> None:
    request = {"inputs": [tensor("FP32", values("FP32", 400_000))]}
    assert ask(server, "FP32", request).status == 200
    killed = helpers(server)
    assert killed
    for process in killed:
        process.kill()
    wait_until(lambda: all(p.status() == psutil.STATUS_ZOMBIE for p in killed), 5, "the processes have ended")
    for _ in range(3):
        assert ask(server, "FP32", request).status == 200


# The slowest of many requests is measured.
@pytest.mark.slow
@pytest.mark.serial
def test_nobody_else_waits(server: RunningServer) -> None:
    """While seconds of JSON are read, small requests are answered."""
    import threading

    body = json.dumps({"inputs": [tensor("FP64", [0.123456789] * 4_000_000)]}).encode()
    answered: list[HttpResponse] = []
    large = threading.Thread(target=lambda: answered.append(server.request("POST", "/v2/models/FP64/infer", body)))
    large.start()
    slowest = 0.0
    rounds = 0
    while large.is_alive():
        begun = time.monotonic()
        assert ask(server, "FP32", {"inputs": [tensor("FP32", [1.0])]}).status == 200
        slowest = max(slowest, time.monotonic() - begun)
        rounds += 1
    large.join()
    assert answered[0].status == 200
    assert rounds >= 10
    # Reading it on the loop takes more than half a second in one go; the figure itself is in the benchmarks.
    assert slowest < 0.4


@pytest.mark.slow
def test_its_processes_end_with_the_server(tmp_path: Path) -> None:
    (tmp_path / "models" / "FP32" / "1").mkdir(parents=True)
    (tmp_path / "models" / "FP32" / "config.pbtxt").write_text(CONFIG.format(kind="FP32"))
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as running:
        assert ask(running, "FP32", {"inputs": [tensor("FP32", values("FP32", 400_000))]}).status == 200
        left = helpers(running)
        assert left
    _, alive = psutil.wait_procs(left, 20)
    assert not alive
