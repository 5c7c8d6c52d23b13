"""What the contract of a call promises, over both transports: grpcio clients against small methods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import grpc
import numpy as np
import pytest
import uvloop

from naiad.errors import INTERNAL_FAILURE
from naiad.frontends.grpc.rpc.call import Body, Methods, Receiver, RpcCall, Streaming, Unary
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.wire.grpc.status import MAX_TEXT_BYTES, NO_MESSAGE, STOPPING
from support.event_loops import WAIT_S, run
from support.grpc_transports import TRANSPORTS, Transport, carried

BLOCK = b"x" * 65_536


@dataclass
class Seen:
    """What the methods below saw and keep for the test."""

    call: RpcCall | None = None
    messages: list[bytes] = field(default_factory=list)
    cancels: int = 0
    ends: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self) -> None:
        self.cancels += 1
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` holds after something happened."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@dataclass
class Listening:
    """A receiver that does what its messages say, or sends them back."""

    seen: Seen
    call: RpcCall

    def receive(self, message: Body) -> None:
        self.seen.messages.append(bytes(message))
        self.seen.changed.set()
        if message == b"pause":
            self.call.pause()
        elif message == b"fail":
            self.call.finish(9, "as you wish")
        elif message == b"enough":
            self.call.finish()
            self.call.pause()
        elif message == b"raise":
            raise ValueError("a fault")
        else:
            self.call.send((message,), len(message))

    def end(self) -> None:
        self.seen.ends += 1
        self.seen.changed.set()
        self.call.finish()

    def cancel(self) -> None:
        self.seen.cancel()


def methods(seen: Seen) -> Methods:
    def echo(call: RpcCall, message: Body) -> None:
        call.reply((message,), len(message))

    def parts(call: RpcCall, message: Body) -> None:
        array = np.arange(6, dtype=np.int16).reshape(2, 3)
        call.reply((b"<", memoryview(message)[1:], array, b">"), len(message) + 1 + array.nbytes)
        call.reply((b"late",), 4)

    def count(call: RpcCall, message: Body) -> None:
        for number in range(int(message)):
            call.send((b"%d" % number,), len(b"%d" % number))
        call.finish(3, "Größe 100% \ud800\n" + "ü" * 5000)

    def keep(call: RpcCall, message: Body) -> None:
        seen.call, call.owner = call, seen
        seen.changed.set()

    def fault(call: RpcCall, message: Body) -> None:
        call.owner = seen
        raise ValueError("a fault")

    def listen(call: RpcCall) -> Receiver:
        receiver = Listening(seen, call)
        seen.call = call
        return receiver

    def refuse(call: RpcCall) -> Receiver:
        raise ValueError("a fault")

    return {
        "/t/echo": Unary(echo, compressed=True),
        "/t/parts": Unary(parts),
        "/t/count": Unary(count),
        "/t/keep": Unary(keep),
        "/t/fault": Unary(fault),
        "/t/listen": Streaming(listen),
        "/t/refuse": Streaming(refuse),
    }


Scenario = Callable[[Any, Seen, Transport], Coroutine[Any, Any, None]]


@pytest.fixture(params=TRANSPORTS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which transport."""
    return str(request.param)


def play(
    kind: str, scenario: Scenario, limits: GrpcLimits | None = None, options: Sequence[tuple[str, int]] = ()
) -> None:
    """Serve the methods and run a scenario with a channel of grpcio."""

    async def test() -> None:
        seen = Seen()
        async with (
            carried(kind, methods(seen), limits) as transport,
            grpc.aio.insecure_channel(transport.address, options=options) as channel,
        ):
            await scenario(channel, seen, transport)

    run(test())


async def ask(channel: Any, name: str, message: bytes = b"", **more: Any) -> bytes:
    return bytes(await channel.unary_unary(f"/t/{name}")(message, timeout=WAIT_S, **more))


async def refusal(call: Any) -> tuple[str, str]:
    """Code and text of a call that must fail."""
    # Not by pytest.raises: what it keeps would hold the client's connection open.
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details()
    raise AssertionError("the call succeeded")


async def gone(seen: Seen) -> None:
    """Wait until the service was told that the caller gave up; it must be told once."""
    await seen.until(lambda: seen.cancels)
    assert seen.call is not None
    assert (seen.cancels, seen.call.ended, seen.call.owner) == (1, True, None)
    seen.call.send((b"x",), 1)
    seen.call.finish(3, "nobody hears this")


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_both_loops(kind: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def test() -> None:
        async with (
            carried(kind, methods(Seen())) as transport,
            grpc.aio.insecure_channel(transport.address) as channel,
        ):
            messages = [b"%d" % number for number in range(50)]
            assert await asyncio.gather(*(ask(channel, "echo", m) for m in messages)) == messages

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(test(), 6 * WAIT_S))


def test_an_answer_in_parts(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        assert await ask(channel, "parts", b"-abc") == b"<abc" + np.arange(6, dtype=np.int16).tobytes() + b">"
        assert await ask(channel, "echo", b"") == b""

    play(kind, scenario)


def test_several_answers_and_a_text_that_is_cut(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.unary_stream("/t/count")(b"3", timeout=WAIT_S)
        assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
        code, text = await refusal(call.read())
        assert code == "INVALID_ARGUMENT"
        assert text.startswith("Größe 100% ?\nüüü")
        assert "ü...ü" in text
        assert MAX_TEXT_BYTES - 12 < len(quote(text, safe=" ")) <= MAX_TEXT_BYTES

    play(kind, scenario)


def test_unknown_methods_have_no_text(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        for path in ("/x.Y/Z", "/t/nope", "/t"):
            assert await refusal(channel.unary_unary(path)(b"", timeout=WAIT_S)) == ("UNIMPLEMENTED", "")

    play(kind, scenario)


def test_metadata(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        metadata = (("one", "1"), ("two", "a"), ("two", "b"), ("raw-bin", b"\x00\xff"))
        call = channel.unary_unary("/t/keep")(b"", timeout=WAIT_S, metadata=metadata)
        await seen.until(lambda: seen.call)
        assert seen.call is not None
        found = seen.call.metadata
        assert (found["one"], found["two"], found["raw-bin"]) == ("1", "a,b", "AP8")
        assert "grpc-python-asyncio" in found["user-agent"]
        seen.call.reply((b"done",), 4)
        assert (await call, seen.cancels, seen.call.ended) == (b"done", 0, True)

    play(kind, scenario)


def test_a_caller_who_cancels(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.unary_unary("/t/keep")(b"", timeout=WAIT_S)
        # A call is sent once something waits for it.
        waiting = asyncio.ensure_future(call.code())
        await seen.until(lambda: seen.call)
        call.cancel()
        assert await waiting is grpc.StatusCode.CANCELLED
        await gone(seen)

    play(kind, scenario)


@pytest.mark.slow
def test_a_deadline_that_passes(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        code, _ = await refusal(channel.unary_unary("/t/keep")(b"", timeout=1.0))
        assert code == "DEADLINE_EXCEEDED"
        await gone(seen)

    play(kind, scenario)


def test_a_stream_both_ways(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        async def questions() -> AsyncIterator[bytes]:
            for number in range(100):
                yield b"%d" % number

        call = channel.stream_stream("/t/listen")(questions(), timeout=WAIT_S)
        assert [m async for m in call] == [b"%d" % n for n in range(100)]
        assert (await call.code(), seen.ends, seen.cancels) == (grpc.StatusCode.OK, 1, 0)

    play(kind, scenario)


@pytest.mark.parametrize(
    ("last", "code", "text"),
    [
        (b"fail", "FAILED_PRECONDITION", "as you wish"),
        (b"enough", "OK", ""),
        (b"raise", "INTERNAL", INTERNAL_FAILURE),
    ],
)
def test_a_service_that_ends_a_stream_early(kind: str, last: bytes, code: str, text: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.stream_stream("/t/listen")(timeout=WAIT_S)
        await call.write(b"one")
        assert await call.read() == b"one"
        await call.write(last)
        assert ((await call.code()).name, await call.details()) == (code, text)
        assert (seen.ends, seen.messages) == (0, [b"one", last])
        assert await ask(channel, "echo", b"the others go on") == b"the others go on"

    play(kind, scenario)


def test_a_stream_whose_caller_goes_away(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.stream_stream("/t/listen")(timeout=WAIT_S)
        await call.write(b"pause")
        await seen.until(lambda: seen.messages)
        call.cancel()
        await gone(seen)

    play(kind, scenario)


def test_a_paused_stream_is_not_read(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.stream_stream("/t/listen")(timeout=WAIT_S)
        await call.write(b"pause")
        await call.write(b"one")
        await seen.until(lambda: seen.messages)
        assert await ask(channel, "echo", b"time passes") == b"time passes"
        assert seen.messages == [b"pause"]
        assert seen.call is not None
        seen.call.resume()
        assert await call.read() == b"one"
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK

    play(kind, scenario)


def test_answers_that_the_caller_does_not_take(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.stream_stream("/t/listen")(timeout=WAIT_S)
        await call.write(b"hello")
        assert await call.read() == b"hello"
        kept = seen.call
        assert kept is not None
        drained = asyncio.Event()
        kept.on_drained = drained.set
        sent = 0
        while not kept.congested:
            kept.send((BLOCK,), len(BLOCK))
            sent += 1
        assert not drained.is_set()
        for _ in range(sent):
            assert await call.read() == BLOCK
        await asyncio.wait_for(drained.wait(), WAIT_S)
        assert not kept.congested
        kept.finish()
        assert await call.code() is grpc.StatusCode.OK

    play(kind, scenario)


@pytest.mark.parametrize("name", ["fault", "refuse"])
def test_a_fault_of_a_service_costs_its_own_call(kind: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        found = await refusal(ask(channel, name))
        assert found == ("INTERNAL", INTERNAL_FAILURE)
        assert await ask(channel, "echo", b"the others go on") == b"the others go on"

    with caplog.at_level(logging.ERROR):
        play(kind, scenario)
    (record,) = caplog.records
    assert "ValueError: a fault" in caplog.text
    assert record.name.startswith("naiad.frontends.grpc.")


def test_a_call_without_a_message(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = channel.stream_stream("/t/echo")(timeout=WAIT_S)
        await call.done_writing()
        assert (await call.code(), await call.details()) == (grpc.StatusCode.INTERNAL, NO_MESSAGE)

    play(kind, scenario)


def test_large_messages_and_those_that_are_too_large(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        large = bytes(5_000_000)
        assert await ask(channel, "echo", large) == large
        code, _ = await refusal(ask(channel, "echo", bytes(5_000_001)))
        assert code == "RESOURCE_EXHAUSTED"

    unlimited = (("grpc.max_receive_message_length", -1),)
    play(kind, scenario, GrpcLimits(max_message_bytes=5_000_000), unlimited)


def test_draining_answers_what_is_in_flight_and_refuses_what_is_new(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = asyncio.ensure_future(ask(channel, "keep"))
        await seen.until(lambda: seen.call)
        draining = asyncio.ensure_future(transport.drain(WAIT_S))
        await asyncio.sleep(0)
        code, text = await refusal(ask(channel, "echo"))
        assert code == "UNAVAILABLE"
        # Our own stack closes its port first, so that a client may learn it from that.
        assert text == STOPPING or (kind == "naiad" and "Connection refused" in text)
        assert not draining.done()
        assert seen.call is not None
        seen.call.reply((b"answer",), 6)
        assert await call == b"answer"
        assert await draining

    play(kind, scenario)


def test_draining_drops_what_takes_too_long(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = asyncio.ensure_future(refusal(ask(channel, "keep")))
        await seen.until(lambda: seen.call)
        assert not await transport.drain(0.05)
        assert (await call)[0] == "UNAVAILABLE"
        await gone(seen)
        assert await transport.drain(0.05)

    play(kind, scenario)


def test_abort_drops_everything(kind: str) -> None:
    async def scenario(channel: Any, seen: Seen, transport: Transport) -> None:
        call = asyncio.ensure_future(refusal(ask(channel, "keep")))
        await seen.until(lambda: seen.call)
        transport.abort()
        assert (await call)[0] == "UNAVAILABLE"
        await gone(seen)

    play(kind, scenario)
