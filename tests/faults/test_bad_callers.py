"""Callers that send nonsense, break off or hang: each gets its own error, and nobody else notices."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from naiad.testing import RunningServer, read_response, request_bytes, serving, wait_until
from support.served_models import LOOK_UP, identity, numbers, write_model

GOOD, BAD = 150, 50
ROWS = 8
MEGABYTE = 1 << 20
BATCHED = f"""
max_batch_size: {ROWS}
dynamic_batching {{ preferred_batch_size: [ {ROWS} ] max_queue_delay_microseconds: 20000 }}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("faults")
    write_model(folder / "models", "look_up", BATCHED, graph=LOOK_UP)
    write_model(folder / "models", "same", identity())
    write_model(folder / "models", "big", identity("TYPE_UINT8"))
    with serving(folder / "log", folder / "models") as running:
        yield running
        assert "Traceback" not in running.log


def look_up(server: RunningServer, index: int) -> tuple[int, object]:
    """Ask for one row: the status, and the value or the error."""
    tensor = {"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [index]}
    answer = server.infer("look_up", {"id": str(index), "inputs": [tensor]})
    return answer.status, answer.json()["outputs"][0]["data"] if answer.status == 200 else answer.error


def assert_serves(server: RunningServer) -> None:
    """A good request is answered, and soon."""
    begun = time.monotonic()
    assert server.infer("same", numbers([1, -2])).json()["outputs"][0]["data"] == [1, -2]
    assert time.monotonic() - begun < 15


def test_good_requests_beside_bad_ones_in_the_same_batches(server: RunningServer) -> None:
    indices = [7000 + i if i % 4 == 3 else i % 4 for i in range(GOOD + BAD)]
    before = server.statistics("look_up")["inference_stats"]
    with ThreadPoolExecutor(32) as callers:
        answers = list(callers.map(lambda i: look_up(server, i), indices))
    good = [(i, a) for i, a in zip(indices, answers, strict=True) if i < 4]
    assert len(good) == GOOD
    assert [a for _, a in good] == [(200, [10.0 + i]) for i, _ in good]
    bad = [(i, a) for i, a in zip(indices, answers, strict=True) if i >= 4]
    assert len(bad) == BAD
    for index, (status, text) in bad:
        assert status == 500
        assert str(index) in str(text)
    found = server.statistics("look_up")
    stats = found["inference_stats"]
    assert stats["success"]["count"] - before["success"]["count"] == GOOD
    assert stats["fail"]["count"] - before["fail"]["count"] == BAD
    assert_serves(server)


def test_connections_killed_in_the_middle_of_a_request(server: RunningServer) -> None:
    whole = request_bytes("POST", "/v2/models/same/infer", json.dumps(numbers([1] * 50)).encode())
    for i in range(200):
        peer = server.connect()
        peer.sendall(whole[: 1 + i * len(whole) // 200])
        if i % 2:
            # A reset in place of an orderly end.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    assert_serves(server)
    wait_until(lambda: connections(server) <= 1, 10, "the dead connections are gone")


def connections(server: RunningServer) -> int:
    """Established connections of the server's HTTP port."""
    import psutil

    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(1 for c in found if c.laddr.port == server.http and c.status == psutil.CONN_ESTABLISHED)


def test_callers_that_leave_before_the_answer(server: RunningServer) -> None:
    body = json.dumps({"inputs": [{"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [1]}]}).encode()
    for _ in range(50):
        with server.connect() as peer:
            peer.sendall(request_bytes("POST", "/v2/models/look_up/infer", body))
    with ThreadPoolExecutor(8) as callers:
        assert list(callers.map(lambda i: look_up(server, i), [0, 1, 2] * 4)) == [
            (200, [10.0 + i]) for i in [0, 1, 2] * 4
        ]


def test_a_slow_reader_beside_fast_ones(server: RunningServer) -> None:
    data = bytes(range(256)) * (32 * MEGABYTE // 256)
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "UINT8",
                    "shape": [len(data)],
                    "parameters": {"binary_data_size": len(data)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    request = request_bytes(
        "POST", "/v2/models/big/infer", head + data, [("Inference-Header-Content-Length", str(len(head)))]
    )
    slow = server.connect()
    sender = threading.Thread(target=slow.sendall, args=(request,))
    sender.start()
    sender.join(20)
    assert not sender.is_alive()
    for _ in range(100):
        assert_serves(server)
    with slow:
        answer = read_response(slow)
    assert answer.status == 200
    assert answer.body.endswith(data)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param([("Content-Length", "99999999999")], 400, id="100 GB"),
        pytest.param([("Content-Length", "9" * 30)], 400, id="more than a number holds"),
        pytest.param([("Content-Length", "-1")], 400, id="negative"),
        pytest.param([("Content-Length", "12"), ("Content-Length", "13")], 400, id="two lengths"),
        pytest.param([("Transfer-Encoding", "chunked"), ("Content-Length", "5")], 400, id="chunks and a length"),
        pytest.param([("X-Long", "x" * 200_000)], 431, id="a long header"),
    ],
)
def test_claims_about_the_length(server: RunningServer, headers: list[tuple[str, str]], status: int) -> None:
    before = server.memory_bytes()
    lines = [f"{k}: {v}\r\n" for k, v in headers]
    with server.connect() as peer:
        peer.sendall(f"POST /v2/models/same/infer HTTP/1.1\r\nHost: x\r\n{''.join(lines)}\r\n".encode())
        assert read_response(peer).status == status
    assert server.memory_bytes() - before < 8 * MEGABYTE
    assert_serves(server)


HUGE = 9223372036854775807
ONE = '{{"inputs":[{{"name":"INPUT0","datatype":"INT32","shape":{shape},"data":{data}}}]}}'
BODIES = {
    "shape that overflows": ONE.format(shape=f"[{HUGE},16]", data="[1]"),
    "shape that overflows twice": ONE.format(shape=f"[{2**62},{2**62},{2**62}]", data="[1]"),
    "shape of many dims": ONE.format(shape=[1] * 500, data="[1]"),
    "huge dim and no data": ONE.format(shape=f"[{2**40}]", data="[]"),
    "deep data": ONE.format(shape="[1]", data="[" * 50_000 + "]" * 50_000),
    "deep and never closed": ONE.format(shape="[1]", data="[" * 50_000),
    "deep objects": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "deep parameters": '{"parameters":' * 2_000 + "1" + "}" * 2_000,
    "a number without end": ONE.format(shape="[1]", data="[" + "9" * 100_000 + "]"),
    "a string for a number": ONE.format(shape="[1]", data='["x"]'),
    "a huge exponent": ONE.format(shape="[1]", data="[1e999999]"),
    "not UTF-8": '{"inputs":"\udcff"}',
    "lone surrogate": '{"id":"\\ud800","inputs":[]}',
    "a list": "[]",
    "a text": '"inputs"',
    "nothing but a null byte": "\x00",
    "the same input twice": '{"inputs":['
    + ",".join(['{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}'] * 2)
    + "]}",
    "binary size without end": '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"parameters":'
    f'{{"binary_data_size":{HUGE}}}}}]}}',
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("length", [False, True], ids=["JSON", "JSON with its length"])
def test_bodies_that_make_no_sense(server: RunningServer, name: str, length: bool) -> None:
    body = BODIES[name].encode("utf-8", "surrogateescape")
    headers = [("Inference-Header-Content-Length", str(len(body)))] if length else []
    answer = server.request("POST", "/v2/models/same/infer", body, headers)
    assert answer.status == 400, answer.body[:300]
    assert answer.error
    assert len(answer.body) < 2000
    if name.startswith("deep"):
        assert "JSON nesting depth exceeds maximum allowed limit (100)" in answer.error
    assert_serves(server)


@pytest.mark.parametrize("claim", ["-1", "57", "99999999999999999999", "-99999999999999999999", "9" * 5000])
def test_header_lengths_that_make_no_sense(server: RunningServer, claim: str) -> None:
    body = json.dumps(numbers([1])).encode()
    answer = server.request("POST", "/v2/models/same/infer", body, [("Inference-Header-Content-Length", claim)])
    assert answer.status == 400, answer.body[:300]
    assert_serves(server)


def test_thousands_of_bad_requests_cost_no_memory(server: RunningServer) -> None:
    bodies = [body.encode("utf-8", "surrogateescape") for body in BODIES.values() if len(body) < 5000]

    def send(count: int) -> None:
        with server.connect() as peer:
            for i in range(count):
                unlike = b'{"id":"%d","inputs":[{"name":"INPUT%d"}]}' % (i, i)
                peer.sendall(
                    request_bytes("POST", "/v2/models/same/infer", bodies[i % len(bodies)] if i % 2 else unlike)
                )
                assert read_response(peer).status == 400

    send(1000)
    before = server.memory_bytes()
    send(2000)
    assert server.memory_bytes() - before < 4 * MEGABYTE
    assert_serves(server)


@pytest.mark.slow
def test_many_models_that_do_not_exist_cost_no_memory(server: RunningServer) -> None:
    def send(start: int) -> None:
        with server.connect() as peer:
            for i in range(start, start + 2000):
                peer.sendall(request_bytes("GET", f"/v2/models/none{i}{'x' * 500}", None))
                assert read_response(peer).status == 404

    send(0)
    before = server.memory_bytes()
    send(10_000)
    send(20_000)
    assert server.memory_bytes() - before < 4 * MEGABYTE
    assert_serves(server)
