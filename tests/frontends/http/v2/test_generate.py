"""``generate`` and ``generate_stream``, with models whose part the test plays, and with one on the loop."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.errors import BackendError, NaiadError, NotFoundError, QueueFullError
from naiad.frontends.http.v2.generate import MAX_UNWRITTEN
from naiad.request import InferRequest, Outputs
from naiad.tensor.packed_bytes import packed_if_large
from naiad.testing import write_model
from support.event_loops import WAIT_S
from support.http_application import House, Peer, identity_config, play
from support.played_model import PlayedModel

NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses"
)
HEAD = "HTTP/1.1 {} {}\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def write_models(repository: Path) -> None:
    write_model(repository, "texts", identity_config(("0", "TYPE_STRING", "[ 1 ]"), ("1", "TYPE_FP32", "[ -1 ]")))
    batched = identity_config(("0", "TYPE_INT64", "[ 2 ]"), more="max_batch_size: 4")
    write_model(repository, "batched", batched, versions=(3,))
    write_model(repository, "halves", identity_config(("0", "TYPE_FP16", "[ 1 ]")))


def output(*values: bytes) -> Outputs:
    return Outputs({"OUTPUT0": np.array(values, np.object_)})


def events(peer: Peer) -> list[Any]:
    """The events so far, the end of the body as None."""
    body = bytes(peer.transport.written).partition(b"\r\n\r\n")[2]
    found: list[Any] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        piece, body = body[: int(size, 16)], body[int(size, 16) + 2 :]
        assert not piece or (piece.startswith(b"data: ") and piece.endswith(b"\n\n"))
        found.append(json.loads(piece[6:]) if piece else None)
    return found


def begin(peer: Peer, path: str, request: Any) -> None:
    """Send a request without waiting for its answer."""
    body = json.dumps(request).encode()
    raw = f"POST /v2/models/{path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    target = peer.connection.get_buffer(-1)
    target[: len(raw)] = raw
    peer.connection.buffer_updated(len(raw))


def head_of(peer: Peer) -> str:
    return bytes(peer.transport.written).partition(b"\r\n\r\n")[0].decode() + "\r\n\r\n"


async def generate(peer: Peer, model: str, request: Any, **headers: str) -> tuple[int, Any]:
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer = await peer.ask("POST", f"/v2/models/{model}/generate", body, headers)
    assert answer.type == "application/json"
    return answer.status, answer.json


def test_models_on_the_loop_and_shapes(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        named = {"model_name": "texts", "model_version": "1"}
        both = {"INPUT0": "ä", "INPUT1": [0.5, 1]}
        for _ in range(2):
            assert await generate(peer, "texts", both) == (
                200,
                {"OUTPUT0": "ä", "OUTPUT1": [0.5, 1.0], **named},
            )
        assert (await generate(peer, "texts", {**both, "id": "7"}))[1]["id"] == "7"
        rows = await generate(peer, "batched/versions/3", {"parameters": {"INPUT0": [1, 2, 3, 4]}})
        assert rows == (200, {"OUTPUT0": [1, 2, 3, 4], "model_name": "batched", "model_version": "3"})
        begin(peer, "texts/generate_stream", both)
        assert head_of(peer) == HEAD.format(200, "OK")
        assert events(peer) == [{"OUTPUT0": "ä", "OUTPUT1": [0.5, 1.0], **named}, None]
        peer.transport.written.clear()
        assert (await generate(peer, "texts", both))[0] == 200

    play(tmp_path, scenario)


def test_what_is_refused_before_it_reaches_the_model(tmp_path: Path) -> None:
    write_models(tmp_path)
    whole = {"INPUT0": "a", "INPUT1": 1}

    async def scenario(house: House, peer: Peer) -> None:
        async def refused(model: str, request: Any, **headers: str) -> tuple[int, str]:
            found = []
            for way in ("generate", "generate_stream"):
                body = request if isinstance(request, bytes) else json.dumps(request).encode()
                answer = await peer.ask("POST", f"/v2/models/{model}/{way}", body, headers)
                assert answer.type == "application/json"
                found.append((answer.status, answer.error))
            assert found[0] == found[1]
            return found[0]

        assert await refused("nope", whole) == (404, "Request for unknown model: 'nope' is not found")
        assert (await refused("texts/versions/9", whole))[0] == 404
        encoded = {"Content-Encoding": "gzip"}
        text = "Unsupported content-encoding, only 'identity' is supported."
        assert await refused("texts", whole, **encoded) == (400, text)
        assert "expected 2 inputs but got 1 inputs" in (await refused("texts", {"INPUT0": "a"}))[1]
        assert "expected 2 inputs but got 0 inputs" in (await refused("texts", {"abc": 123}))[1]
        twice = await refused("texts", b'{"INPUT0": "a", "INPUT0": "b", "INPUT1": 1}')
        assert twice == (400, "[request id: <id_unknown>] input 'INPUT0' already exists in request")
        assert "batch-size must be <= 4" in (await refused("batched", {"INPUT0": list(range(10))}))[1]
        assert "batch-size must be at least 1" in (await refused("batched", {"INPUT0": []}))[1]
        assert "takes strings, found 5 at element 0" in (await refused("texts", {**whole, "INPUT0": 5}))[1]
        assert "takes strings, found an object" in (await refused("texts", {**whole, "INPUT0": {"INPUT0": 1}}))[1]
        assert "receiving FP16 data via JSON" in (await refused("halves", {"INPUT0": 1}))[1]
        answer = await peer.ask("GET", "/v2/models/texts/generate")
        assert (answer.status, answer.type, answer.error) == (405, "application/json", "Method Not Allowed")

    play(tmp_path, scenario)


ONE, TWO, REFUSED = (output(b"one"), None), (output(b"two"), None), (None, BackendError("refused"))
SAYS_ONE = {"OUTPUT0": "one", "model_name": "texts", "model_version": "1"}


@pytest.mark.parametrize(
    ("responses", "status", "found"),
    [
        ([ONE], 200, SAYS_ONE),
        ([], 200, {"error": NOT_ONE}),
        ([ONE, TWO], 200, {"error": NOT_ONE}),
        ([REFUSED], 400, {"error": "refused"}),
        ([(None, NotFoundError("no"))], 400, {"error": "no"}),
        ([(None, QueueFullError("full"))], 503, {"error": "full"}),
        ([(output(b"\xff"), None)], 400, None),
    ],
)
@pytest.mark.parametrize("is_apart", [False, True])
def test_generate_takes_exactly_one_response(
    tmp_path: Path, responses: list[tuple[Outputs | None, NaiadError | None]], status: int, found: Any, is_apart: bool
) -> None:
    """``is_apart``: the end comes apart from the last response."""
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate", {"INPUT0": "a", "INPUT1": 1})
        for index, (outputs, error) in enumerate(responses):
            played.last.respond_part(outputs, error, not is_apart and index == len(responses) - 1)
        if is_apart or not responses:
            played.last.respond_part(None, None, True)
        head, _, body = bytes(peer.transport.written).partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert (b"Retry-After: 1" in head) == (status == 503)
        assert found is None or json.loads(body) == found
        # A second response is one too many: nothing more is wanted of the model.
        assert len(played.cancelled) == (is_apart and len(responses) > 1)
        played.last.respond_part(None, None, True)

    play(tmp_path, scenario)


def test_a_stream_that_can_be_tried_again_says_so(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        played.last.respond_part(None, QueueFullError("full"), True)
        assert head_of(peer).startswith("HTTP/1.1 503 ")
        assert "\r\nRetry-After: 1\r\n" in head_of(peer)
        assert events(peer) == [{"error": "full"}, None]

    play(tmp_path, scenario)


def test_events_leave_as_they_come(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate_stream", {"id": "7", "INPUT0": "a", "INPUT1": 1})
        respond = played.last.respond_part
        assert not peer.transport.written
        respond(Outputs({"OUTPUT0": np.array([b"one"], np.object_)}, {"n": 1}), None, False)
        said = {"id": "7", "model_name": "texts", "model_version": "1"}
        assert head_of(peer) == HEAD.format(200, "OK")
        assert events(peer) == [{"OUTPUT0": "one", "n": 1, **said}]
        respond(None, BackendError("in the middle"), False)
        respond(output(b"two"), None, False)
        respond(None, None, True)
        assert events(peer)[1:] == [{"error": "in the middle"}, {"OUTPUT0": "two", **said}, None]
        assert not peer.connection.pending and not played.cancelled

    play(tmp_path, scenario)


def test_a_stream_that_begins_with_an_error_and_one_without_events(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        played.last.respond({}, BackendError("refused"))
        assert head_of(peer) == HEAD.format(400, "Bad Request")
        assert events(peer) == [{"error": "refused"}, None]
        peer.transport.written.clear()
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        played.last.respond_part(None, None, True)
        assert head_of(peer) == HEAD.format(200, "OK").replace("Transfer-Encoding: chunked", "Content-Length: 0")

    play(tmp_path, scenario)


def test_what_a_caller_does_not_take_is_bounded(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        peer.transport.get_write_buffer_size = lambda: len(peer.transport.written)  # type: ignore[method-assign]
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        sent = 0
        while not played.cancelled:
            sent += 1
            assert sent < 100
            played.last.respond_part(output(b"x" * (1 << 20)), None, False)
        # Large pieces wait for a turn of the loop.
        await asyncio.sleep(0)
        *_, error, end = events(peer)
        assert "come faster than they are taken" in error["error"] and end is None
        assert 16 <= sent <= 20
        written = len(peer.transport.written)
        played.last.respond_part(output(b"too late"), None, True)
        assert len(peer.transport.written) == written

    play(tmp_path, scenario)


def large(text: str, size: int = 100_000) -> Outputs:
    """A response that is written in another process."""
    return Outputs({"OUTPUT0": packed_if_large(np.array([text.encode() * size], np.object_), "OUTPUT0")}, {"p": text})


async def told(peer: Peer, count: int) -> list[Any]:
    """So many events, the end of the body included."""
    async with asyncio.timeout(WAIT_S):
        while peer.transport.written.count(b"data: ") + peer.transport.written.endswith(b"0\r\n\r\n") < count:
            peer.transport.arrived.clear()
            await peer.transport.arrived.wait()
    return events(peer)


def test_a_large_response_is_the_same_as_a_small_one(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts")
        responses = [large("ü"), Outputs({"OUTPUT0": np.ones(1 << 18, np.float16)})]
        played.model.submit = lambda asked: asked.respond(responses.pop(0), None)
        status, found = await generate(peer, "texts", {"INPUT0": "a", "INPUT1": 1, "id": "7"})
        said = {"id": "7", "model_name": "texts", "model_version": "1", "p": "ü"}
        assert (status, found) == (200, {"OUTPUT0": "ü" * 100_000, **said})
        status, found = await generate(peer, "texts", {"INPUT0": "a", "INPUT1": 1})
        assert status == 400 and "FP16" in found["error"]

    play(tmp_path, scenario)


def test_events_behind_a_large_one_wait_for_it(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        asked = played.last
        for response in (output(b"1"), large("2"), output(b"3"), large("4"), output(b"5")):
            asked.respond_part(response, None, False)
        assert list(played.held) == [asked]
        asked.respond_part(None, BackendError("6"), False)
        asked.respond_part(None, None, True)
        *found, error, end = await told(peer, 7)
        assert [event["OUTPUT0"][0] for event in found] == ["1", "2", "3", "4", "5"]
        assert [len(event["OUTPUT0"]) for event in found] == [1, 100_000, 1, 100_000, 1]
        assert (error, end) == ({"error": "6"}, None)
        assert not peer.connection.pending and not played.cancelled

    play(tmp_path, scenario)


def test_what_waits_behind_a_large_response_is_bounded(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        played.last.respond_part(large("2"), None, False)
        for _ in range(MAX_UNWRITTEN):
            played.last.respond_part(output(b"3"), None, False)
        assert not played.cancelled
        played.last.respond_part(output(b"3"), None, False)
        assert played.cancelled == [played.last]
        error, end = await told(peer, 2)
        assert "come faster than they are taken" in error["error"] and end is None

    play(tmp_path, scenario)


def test_a_model_goes_on_behind_a_large_response(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        begin(peer, "texts/generate_stream", {"INPUT0": "a", "INPUT1": 1})
        played.last.respond_part(large("2"), None, False)
        assert list(played.held) == [played.last]
        await told(peer, 1)
        assert not played.held
        played.last.respond_part(large("3"), None, True)
        first, second, end = await told(peer, 3)
        assert (first["p"], second["p"], end) == ("2", "3", None)

    play(tmp_path, scenario)


@pytest.mark.parametrize("second", [True, False])
def test_generate_with_a_large_response_takes_no_other_one(tmp_path: Path, second: bool) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)

        def submit(asked: InferRequest) -> None:
            asked.respond_part(large("2"), None, False)
            if second:
                asked.respond_part(large("3"), None, False)
            else:
                asked.respond_part(None, None, True)

        played.model.submit = submit
        status, found = await generate(peer, "texts", {"INPUT0": "a", "INPUT1": 1})
        assert status == 200
        assert found == {"error": NOT_ONE} if second else found["p"] == "2"
        assert len(played.cancelled) == second

    play(tmp_path, scenario)


def test_a_caller_that_leaves_before_a_large_response_is_written(tmp_path: Path) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        for way in ("generate", "generate_stream"):
            with house.peer() as leaver:
                begin(leaver, f"texts/{way}", {"INPUT0": "a", "INPUT1": 1})
                played.last.respond_part(large("2"), None, False)
            work = house.router.json_work
            async with asyncio.timeout(WAIT_S):
                while work._open:
                    await asyncio.sleep(0.01)
            played.last.respond_part(None, None, True)
            assert not leaver.transport.written

    play(tmp_path, scenario)


@pytest.mark.parametrize("way", ["generate", "generate_stream"])
def test_a_caller_that_leaves_cancels_once_and_leaves_nothing(tmp_path: Path, way: str) -> None:
    write_models(tmp_path)

    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "texts", decoupled=True)
        with house.peer() as leaver:
            begin(leaver, f"texts/{way}", {"INPUT0": "a", "INPUT1": 1})
            respond = played.last.respond_part
            respond(output(b"one"), None, False)
            assert leaver.connection.eof_received()
            assert played.cancelled == [played.last]
            if way == "generate_stream":
                # Whoever only stopped sending reads on.
                respond(output(b"two"), None, False)
                assert [event["OUTPUT0"] for event in events(leaver)] == ["one", "two"]
        assert played.cancelled == [played.last]
        written = len(leaver.transport.written)
        respond(output(b"three"), None, False)
        respond(None, None, True)
        assert len(leaver.transport.written) == written
        gc.collect()

    play(tmp_path, scenario)
