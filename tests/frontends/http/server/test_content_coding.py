"""Compressed bodies of inference requests, and compressed answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.frontends.http.server import content_coding
from naiad.frontends.http.server.content_coding import ContentTooLargeError
from naiad.frontends.http.v2.router import Router
from naiad.frontends.inference.offload import OFF_LOOP_BYTES
from naiad.request import InferRequest
from naiad.testing import write_model
from support.event_loops import WAIT_S
from support.http_application import BINARY, JSON, TEXT, Answer, House, Peer, identity_config, play

PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}
CODINGS = pytest.mark.parametrize("coding", PACK)
INFER = "/v2/models/floats/infer"
SMALL, LARGE = 3, 100_000


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "floats", identity_config(("0", "TYPE_FP32", "[ -1 ]"), more="max_batch_size: 8"))
    return tmp_path


def floats(*values: float, **more: Any) -> bytes:
    given = {"name": "INPUT0", "shape": [1, len(values)], "datatype": "FP32", "data": values}
    return json.dumps({**more, "inputs": [given]}).encode()


def binary(array: np.ndarray) -> tuple[bytes, int]:
    """A binary request whose answer is binary too, and the length of its JSON part."""
    given = {
        "name": "INPUT0",
        "shape": array.shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": array.nbytes},
    }
    text = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    return text + array.tobytes(), len(text)


def unpacked(answer: Answer) -> Answer:
    return Answer(answer.status, answer.headers, UNPACK[answer.headers["Content-Encoding"]](answer.body))


@CODINGS
@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_both_ways(repository: Path, coding: str, count: int) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        array = np.random.default_rng(1).random((1, count), np.float32)
        body, length = binary(array)
        headers = {"Inference-Header-Content-Length": length, "Content-Encoding": coding, "Accept-Encoding": coding}
        for _ in range(3):
            answer = unpacked(await peer.ask("POST", INFER, PACK[coding](body), headers))
            assert (answer.status, answer.type) == (200, BINARY)
            assert (answer.outputs()["OUTPUT0"] == array).all()
            plain = await peer.ask("POST", INFER, body, {"Inference-Header-Content-Length": length})
            assert (plain.body, "Content-Encoding" in plain.headers) == (answer.body, False)

    play(repository, scenario)


def test_answers_as_json_are_compressed_and_errors_are_not(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        headers = {"Accept-Encoding": "gzip;q=0.5, deflate"}
        answer = await peer.ask("POST", INFER, floats(1, 2, id="a"), headers)
        assert answer.headers["Content-Encoding"] == "deflate"
        assert unpacked(answer).json["outputs"][0]["data"] == [1, 2]
        answer = await peer.ask("POST", INFER, b"{bad", headers)
        assert (answer.status, "Content-Encoding" in answer.headers) == (400, False)
        answer = await peer.ask("GET", "/v2", headers=headers)
        assert (answer.status, "Content-Encoding" in answer.headers) == (200, False)

    play(repository, scenario)


@CODINGS
@pytest.mark.parametrize("size", [100, OFF_LOOP_BYTES + 1])
def test_bodies_that_are_something_else(repository: Path, coding: str, size: int) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        packed = PACK[coding](os.urandom(size))
        broken = bytearray(packed)
        broken[len(broken) // 2] ^= 0xFF
        for body, text in [
            (packed[:-1], "ends in the middle"),
            (packed[:20], "ends in the middle"),
            (packed + b"x", "goes on behind the end"),
            (bytes(broken), f"cannot be decompressed as {coding}"),
            (os.urandom(20) * (size // 20), f"cannot be decompressed as {coding}"),
        ]:
            answer = await peer.ask("POST", INFER, body, {"Content-Encoding": coding})
            assert (answer.status, answer.type) == (400, JSON)
            assert answer.error.startswith(f"the request body {text}")

    play(repository, scenario)


def test_either_format_under_either_name(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for name, pack in (("gzip", zlib.compress), ("deflate", gzip.compress), ("GZip", gzip.compress)):
            assert (await peer.ask("POST", INFER, pack(floats(1)), {"Content-Encoding": name})).status == 200

    play(repository, scenario)


def test_other_codings(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for coding in ("br", "gzip, gzip", "zstd"):
            answer = await peer.ask("POST", INFER, floats(1), {"Content-Encoding": coding})
            assert (answer.status, answer.type) == (501, TEXT)
            assert answer.error == "Unsupported compression type"
            assert answer.headers["Accept-Encoding"] == "gzip, deflate"
        for coding in ("identity", "Identity", ""):
            assert (await peer.ask("POST", INFER, floats(1), {"Content-Encoding": coding})).status == 200

    play(repository, scenario)


def test_what_was_remembered_of_plain_requests_does_not_read_compressed_ones(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        body, length = binary(np.ones((1, 2), np.float32))
        headers = {"Inference-Header-Content-Length": length}
        for _ in range(3):
            assert (await peer.ask("POST", INFER, body, headers)).status == 200
        assert (await peer.ask("POST", INFER, body, {**headers, "Content-Encoding": "gzip"})).status == 400

    play(repository, scenario)


@pytest.mark.slow
def test_a_body_that_grows_beyond_the_limit_costs_no_more_memory_than_that(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        limit = 1 << 21
        bomb = gzip.compress(bytes(1 << 28), 9)
        with house.peer(Router(house.engine, limit)) as other:
            assert (
                await other.ask("POST", INFER, gzip.compress(floats(1)), {"Content-Encoding": "gzip"})
            ).status == 200
            tracemalloc.start()
            answer = await other.ask("POST", INFER, bomb, {"Content-Encoding": "gzip"})
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert answer.status == 400
        start = f"Decompressed data size exceeds the maximum allowed value of {limit} bytes. Use --http-max-input-size"
        assert answer.error.startswith(start)
        assert peak < 5 * limit + len(bomb)

    play(repository, scenario)


def test_a_small_limit_holds_for_small_bodies(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        with house.peer(Router(house.engine, 1000)) as other:
            answer = await other.ask("POST", INFER, gzip.compress(b" " * 1001), {"Content-Encoding": "gzip"})
            assert answer.status == 400
        with house.peer(Router(house.engine, 1000, too_large=ContentTooLargeError)) as other:
            answer = await other.ask("POST", INFER, gzip.compress(b" " * 1001), {"Content-Encoding": "gzip"})
            assert answer.status == 413

    play(repository, scenario)


def test_unanswered_bodies_are_bounded_together(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_coding, "MAX_INFLATED_BYTES", 1000)

    async def scenario(house: House, peer: Peer) -> None:
        model = house.engine.find("floats", None)
        submit, held = model.submit, []
        model.submit = held.append  # type: ignore[method-assign]
        body = floats(*range(120))
        lines = f"POST {INFER} HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: {len(gzip.compress(body))}\r\n\r\n"
        with house.peer() as first:
            first.receive(lines.encode() + gzip.compress(body))
            assert len(held) == 1
            answer = await peer.ask("POST", INFER, gzip.compress(body), {"Content-Encoding": "gzip"})
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            request: InferRequest = held[0]
            request.respond(request.inputs, None)
        model.submit = submit  # type: ignore[method-assign]
        assert (await peer.ask("POST", INFER, gzip.compress(body), {"Content-Encoding": "gzip"})).status == 200

    play(repository, scenario)


def test_a_caller_that_leaves_while_its_large_json_is_read_holds_nothing(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        body = gzip.compress(floats(*range(200_000)))
        lines = f"POST {INFER} HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        coding, budget = house.router._coding, house.engine.budget
        with house.peer() as leaving:
            leaving.receive(lines.encode() + body)
            assert budget.requests == 1
            async with asyncio.timeout(WAIT_S):
                while not coding._inflated_bytes:
                    await asyncio.sleep(0.001)
                leaving.connection.connection_lost(None)
                while coding._inflated_bytes or budget.requests:
                    await asyncio.sleep(0.001)
        assert budget.bytes == 0

    play(repository, scenario)


def test_a_handler_that_fails_is_answered_for(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = house.engine.find("floats", None)

        def submit(request: InferRequest) -> None:
            raise RuntimeError("out of order")

        model.submit = submit  # type: ignore[method-assign]
        for size in (1, OFF_LOOP_BYTES):
            body = floats(*range(size))
            answer = await peer.ask("POST", INFER, gzip.compress(body), {"Content-Encoding": "gzip"})
            assert (answer.status, "internal error" in answer.error) == (500, True)

    play(repository, scenario)
    assert "out of order" in caplog.text
