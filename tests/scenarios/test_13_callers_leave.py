"""HTTP callers leave: what they had in the queue goes, and the model that runs for them is told."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.testing import read_response, request_bytes, wait_until
from support.python_models import Client, client_of, write_python_model

ROUNDS = 5
WAITING = 20
FREED_S = 0.010
# Says when it begins, and works until it is told that nobody waits.
WORKS = """
class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        folder = os.path.dirname(__file__)
        with open(os.path.join(folder, "begun"), "w"):
            pass
        end = time.time() + float(x.flat[0])
        while time.time() < end and not request.is_cancelled():
            time.sleep(0.001)
        if request.is_cancelled():
            with open(os.path.join(folder, "seen.new"), "w") as file:
                file.write(repr(time.time()))
            os.rename(os.path.join(folder, "seen.new"), os.path.join(folder, "seen"))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)])]
"""


def ask(client: Client, seconds: float) -> socket.socket:
    """A connection on which a request is sent that works for so long."""
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [seconds]}
    body = json.dumps({"inputs": [given]}).encode()
    peer = client.server.connect()
    peer.sendall(request_bytes("POST", "/v2/models/works/infer", body))
    return peer


def close(peer: socket.socket) -> None:
    peer.close()


def reset(peer: socket.socket) -> None:
    """Drop a connection as one that breaks, or as a process that is killed while it has not read everything."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("leave")
    write_python_model(folder / "models", "works", WORKS, "max_batch_size: 1")
    with client_of(folder / "models", folder / "log") as found:
        yield found


@pytest.fixture
def version(client: Client) -> Iterator[Path]:
    """The folder of the model's version, where it writes."""
    found = client.server.log_file.parent / "models" / "works" / "1"
    yield found
    for name in ("begun", "seen"):
        (found / name).unlink(missing_ok=True)


def counted(client: Client) -> int:
    """How many requests the model has failed, which is what a request that is given up counts as."""
    return int(client.server.statistics("works")["inference_stats"]["fail"]["count"])


# Milliseconds are measured.
@pytest.mark.serial
@pytest.mark.parametrize("leave", [close, reset])
def test_the_queue_is_free_at_once(client: Client, version: Path, leave: object) -> None:
    assert callable(leave)
    took: list[float] = []
    with contextlib.closing(ask(client, 30)) as running:
        wait_until((version / "begun").exists, 10, "a request runs")
        with contextlib.closing(client.server.connect()) as watcher:
            for _ in range(ROUNDS):
                peers = [ask(client, 0) for _ in range(WAITING)]
                client.server.wait_pending("works", WAITING)
                failed = counted(client)
                begun = time.monotonic()
                for peer in peers:
                    leave(peer)
                while failed_now(watcher) < failed + WAITING:
                    assert time.monotonic() < begun + 20, "the queue is not freed"
                took.append(time.monotonic() - begun)
                client.server.wait_pending("works", 0)
        leave(running)
    wait_until((version / "seen").exists, 5, "the model is told")
    # The rounds that another process of this machine held up do not count.
    assert min(took) < FREED_S


def failed_now(watcher: socket.socket) -> int:
    """``counted`` on a connection that is open."""
    watcher.sendall(request_bytes("GET", "/v2/models/works/stats", None))
    (found,) = read_response(watcher).json()["model_stats"]
    return int(found["inference_stats"]["fail"]["count"])


# Milliseconds are measured.
@pytest.mark.serial
@pytest.mark.parametrize("leave", [close, reset])
def test_the_model_that_runs_is_told(client: Client, version: Path, leave: object) -> None:
    assert callable(leave)
    took: list[float] = []
    for _ in range(ROUNDS):
        peer = ask(client, 30)
        wait_until((version / "begun").exists, 10, "a request runs")
        begun = time.time()
        leave(peer)
        wait_until((version / "seen").exists, 5, "the model is told")
        took.append(float((version / "seen").read_text()) - begun)
        (version / "begun").unlink()
        (version / "seen").unlink()
    assert 0 < min(took) < 2 * FREED_S
    # It still serves.
    with ask(client, 0) as peer:
        assert read_response(peer, "POST").json()["outputs"][0]["data"] == [0.0]


def test_a_caller_that_only_ends_its_input_is_answered(client: Client, version: Path) -> None:
    with ask(client, 30) as running:
        wait_until((version / "begun").exists, 10, "a request runs")
        with ask(client, 0) as waiting:
            waiting.shutdown(socket.SHUT_WR)
            answer = read_response(waiting, "POST")
        assert (answer.status, "was cancelled by its caller" in answer.error) == (400, True)
        running.shutdown(socket.SHUT_WR)
        # The model is told, and what it answers is sent.
        assert read_response(running, "POST").status == 200
    assert (version / "seen").exists()
