"""JSON of some size takes turns on the loop, so that other requests come in between."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.eventloop import sliced_work
from naiad.frontends.http.json_worker.pool import LARGE_OUTPUT_BYTES, TURN_JSON_BYTES, TURN_OUTPUT_BYTES
from support.http_application import House, Peer, identity_config, play
from support.served_models import write_model

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece of work in each turn of the loop."""
    monkeypatch.setattr(sliced_work, "SLICE_NS", 1)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "floats", identity_config(("0", "TYPE_FP32", "[-1]")))
    return tmp_path


def floats(count: int, padding: int = 0, **more: Any) -> bytes:
    data = np.arange(count, dtype=np.float32).tolist()
    inputs = [{"name": "INPUT0", "shape": [count], "datatype": "FP32", "data": data}]
    return json.dumps({"inputs": inputs, **more}).encode() + b" " * padding


def send(peer: Peer, body: bytes) -> None:
    head = f"POST /v2/models/floats/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    peer.receive(head.encode() + body)


def answered(peers: list[Peer]) -> list[bool]:
    return [bool(peer.transport.written) for peer in peers]


def outputs(peer: Peer) -> list[float]:
    _, _, body = bytes(peer.transport.written).partition(b"\r\n\r\n")
    assert b"200" in peer.transport.written[:15], bytes(peer.transport.written)
    (output,) = json.loads(body)["outputs"]
    return list(output["data"])


def test_a_small_request_waits_for_one_reading_at_most(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        with ExitStack() as stack:
            peers = [stack.enter_context(house.peer()) for _ in range(4)]
            for number, other in enumerate(peers):
                send(other, floats(number + 1, TURN_JSON_BYTES))
            assert answered(peers) == [True, False, False, False]
            assert house.engine.budget.requests == 3
            assert house.engine.budget.bytes > 3 * TURN_JSON_BYTES
            send(peer, floats(2))
            assert outputs(peer) == [0, 1]
            async with asyncio.timeout(WAIT_S):
                while not all(answered(peers)):
                    await asyncio.sleep(0)
            assert [outputs(other) for other in peers] == [list(range(n)) for n in range(1, 5)]
            assert (house.engine.budget.requests, house.engine.budget.bytes) == (0, 0)

    play(repository, scenario)


def test_responses_take_turns_as_well(repository: Path) -> None:
    count = LARGE_OUTPUT_BYTES // 4 - 1
    assert count * 4 > TURN_OUTPUT_BYTES
    raw = np.arange(count, dtype=np.float32).tobytes()
    inputs = [{"name": "INPUT0", "shape": [count], "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}}]
    text = json.dumps({"inputs": inputs, "outputs": [{"name": "OUTPUT0"}]}).encode()
    head = (
        "POST /v2/models/floats/infer HTTP/1.1\r\nHost: a\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(text + raw)}\r\n\r\n"
    ).encode()

    async def scenario(house: House, peer: Peer) -> None:
        with house.peer() as other:
            peers = [peer, other]
            for one in peers:
                one.receive(head + text + raw)
            assert answered(peers) == [True, False]
            send(house_peer := Peer(house.router), floats(2))
            assert outputs(house_peer) == [0, 1]
            house_peer.close()
            async with asyncio.timeout(WAIT_S):
                while not all(answered(peers)):
                    await asyncio.sleep(0)
            assert outputs(other) == outputs(peer) == list(range(count))

    play(repository, scenario)


@pytest.mark.parametrize("request_id", ["", "plain", 'with "quotes" and \\', "\u00fc\n"])
def test_responses_of_any_size_are_alike(repository: Path, request_id: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        found = {}
        for count in (1, TURN_OUTPUT_BYTES // 4, LARGE_OUTPUT_BYTES // 4):
            request = json.loads(floats(count)) | ({"id": request_id} if request_id else {})
            answer = await peer.infer("floats", request)
            assert answer.status == 200
            found[count] = json.loads(answer.body)
            (output,) = found[count].pop("outputs")
            assert output.pop("data") == list(range(count))
            assert output.pop("shape") == [count]
            found[count]["output"] = output
        first, *others = found.values()
        assert first.get("id", "") == request_id
        assert all(other == first for other in others)

    play(repository, scenario)


@pytest.mark.parametrize("what", ["wrong", "closed", "unloaded"])
def test_what_goes_wrong_while_a_request_waits(repository: Path, what: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        with ExitStack() as stack:
            first, second, third = peers = [stack.enter_context(house.peer()) for _ in range(3)]
            send(first, floats(1, TURN_JSON_BYTES))
            body = floats(2, TURN_JSON_BYTES)
            send(second, body.replace(b"0.0, 1.0", b'"text", 2') if what == "wrong" else body)
            send(third, floats(3, TURN_JSON_BYTES))
            if what == "closed":
                second.close()
            elif what == "unloaded":
                assert await house.manager.unload_all(WAIT_S)
            async with asyncio.timeout(WAIT_S):
                while not third.transport.written:
                    await asyncio.sleep(0)
            statuses = [bytes(one.transport.written[:12]) for one in peers]
            ok, bad = b"HTTP/1.1 200", b"HTTP/1.1 400"
            assert (
                statuses
                == {
                    "wrong": [ok, bad, ok],
                    "closed": [ok, b"", ok],
                    "unloaded": [ok, b"HTTP/1.1 404", b"HTTP/1.1 404"],
                }[what]
            )
            assert (house.engine.budget.requests, house.engine.budget.bytes) == (0, 0)

    play(repository, scenario)
