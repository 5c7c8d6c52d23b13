"""What servers of gRPC do at the ends of calls and connections, played to both clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from naiad.client import Client, ConnectionFailedError, ResponseError, RetryPolicy
from naiad.client.grpc_exchange import GrpcExchange
from naiad.wire.grpc.messages import prefix
from naiad.wire.http2 import frames
from naiad.wire.http2.frames import Http2ErrorCode
from support.client_peers import Waiting, playing

Make = Callable[..., Any]
ONCE = RetryPolicy(attempts=1)
QUICK = RetryPolicy(first_pause_s=0.001, longest_pause_s=0.002)
STEP: dict[str, Any] = {"inputs": {"x": np.zeros(4, np.float32)}, "parameters": {"sequence_id": 1}}
# Enough of a greeting, and unlike SETTINGS it asks for no acknowledgement, which would be a request to the script.
HELLO = frames.SETTINGS_ACK
FRAME_BYTES = 1 << 14


@pytest.fixture(params=[Client, Waiting], ids=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def fields(name: str, value: str) -> bytes:
    """A block with one field, which is in no table."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(status: str = "200", stream: int = 1) -> bytes:
    # Begins with the size of the table that the client has asked for.
    return frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream, b"\x20" + fields(":status", status))


def data(content: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return frames.encode_frame(frames.DATA, flags, stream, content)


def answer(stream: int = 1) -> bytes:
    """A response whose message is empty."""
    end = frames.END_HEADERS | frames.END_STREAM
    trailers = frames.encode_frame(frames.HEADERS, end, stream, fields("grpc-status", "0"))
    return head(stream=stream) + data(prefix.pack(0, 0), stream=stream) + trailers


@pytest.mark.parametrize(
    "refusal",
    [
        frames.encode_reset(1, Http2ErrorCode.REFUSED_STREAM),
        frames.encode_goaway(0, Http2ErrorCode.NO_ERROR),
        frames.encode_goaway(0, Http2ErrorCode.ENHANCE_YOUR_CALM, "slow down"),
    ],
    ids=["too many streams", "leaving", "calm"],
)
def test_a_call_that_the_server_has_not_begun_is_sent_again(make: Make, refusal: bytes) -> None:
    script = [HELLO + refusal, HELLO + answer()]
    with playing(script) as (url, requests), make(f"grpc://{url}", retries=QUICK) as client:
        # A step of a sequence, which is repeated only where that is certain.
        assert dict(client.infer("m", **STEP)) == {}
    assert len(requests) == 2


def test_a_server_that_leaves_completes_the_call_and_gets_no_further_one(make: Make) -> None:
    leaving = frames.encode_goaway(frames.MAX_STREAM_ID, Http2ErrorCode.NO_ERROR)
    script = [HELLO + answer() + leaving, HELLO + leaving + answer(), HELLO + answer()]
    with playing(script) as (url, requests), make(f"grpc://{url}", retries=ONCE) as client:
        for _ in script:
            assert dict(client.infer("m", **STEP)) == {}
    # Each begins a connection.
    assert [request.startswith(frames.PREFACE) for request in requests] == [True] * 3


def test_a_reset_behind_the_response_changes_nothing(make: Make) -> None:
    script = [HELLO + answer() + frames.encode_reset(1, Http2ErrorCode.NO_ERROR), answer(3)]
    with playing(script) as (url, requests), make(f"grpc://{url}", retries=ONCE) as client:
        for _ in script:
            assert dict(client.infer("m", **STEP)) == {}
    assert [request.startswith(frames.PREFACE) for request in requests] == [True, False]


def test_a_server_that_ends_in_the_middle_of_a_response(make: Make) -> None:
    script = [HELLO + head() + data(prefix.pack(0, 100) + b"begin")]
    expected = pytest.raises(ConnectionFailedError, match="closed the connection before its response")
    with playing(script) as (url, _), make(f"grpc://{url}", retries=ONCE) as client, expected as error:
        client.infer("m", **STEP)
    assert error.value.was_sent


def test_a_server_of_other_things_than_grpc(make: Make) -> None:
    script = [HELLO + head("404") + data(b"<html>", frames.END_STREAM)]
    expected = pytest.raises(ResponseError, match="HTTP status 404: the server does not speak gRPC here")
    with playing(script) as (url, _), make(f"grpc://{url}", retries=ONCE, timeout_s=30) as client, expected:
        client.infer("m", **STEP)


def test_a_long_stream_gets_new_room_in_both_windows() -> None:
    exchange = GrpcExchange([(":method", "POST")])
    exchange.begin([b"ModelStreamInfer", prefix.pack(0, 0)])
    exchange.feed(HELLO)
    exchange.outgoing()
    message = prefix.pack(0, FRAME_BYTES - len(prefix.pack(0, 0)))
    many = data(message + bytes(FRAME_BYTES - len(message))) * 64
    sent = 0
    while not (out := b"".join(exchange.outgoing())):
        exchange.feed(many)
        assert len(exchange.take_messages()) == 64
        sent += 64 * FRAME_BYTES
        assert sent <= frames.MAX_WINDOW
    assert out == frames.encode_window_update(0, sent) + frames.encode_window_update(1, sent)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_messages_of_a_stream_may_arrive_in_parts(size: int) -> None:
    exchange = GrpcExchange([(":method", "POST")])
    exchange.begin([b"ModelStreamInfer", prefix.pack(0, 0)])
    expected = [b"", b"ab", bytes(range(200)), b"c"]
    whole = HELLO + head() + b"".join(data(prefix.pack(0, len(each)) + each) for each in expected)
    found: list[bytes] = []
    for at in range(0, len(whole), size):
        assert exchange.feed(whole[at : at + size]) is None
        found += exchange.take_messages()
    assert found == expected
