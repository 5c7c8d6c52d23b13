"""Request messages that come in parts, wait for a paused call, take too long or too much."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from support.event_loops import until
from support.h2_application import Conversation
from support.h2_frames import WINDOW, data_frame, frame, message, numbered
from support.h2_peer import Peer, RawPeer, run

MEGABYTE = 1 << 20


# Pausing


def test_no_message_comes_while_paused_and_all_come_in_order() -> None:
    async def test() -> None:
        peer = Peer()
        stream_id = peer.call("/Listen")
        listening = peer.application.conversations[0]
        bodies = [b"%d" % i * (i % 50) for i in range(200)]
        raw = b"".join(map(message, bodies))
        peer.data(stream_id, raw[:100], size=7)
        listening.call.pause()
        seen = len(listening.messages)
        peer.data(stream_id, raw[100:], size=13, end=True)
        assert len(listening.messages) <= seen + 1
        assert not listening.ended
        listening.call.resume()
        await peer.settle()
        assert listening.messages == bodies
        assert listening.ended
        listening.call.finish()
        assert (await peer.answer(stream_id)).status == 0
        peer.leaves_nothing()

    run(test())


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 400_000) | st.integers(0, 50), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(["pause", "resume", "turn", "send", "send"]), st.integers(1, 200_000)), max_size=40
    ),
    st.integers(1, 100_000),
)
def test_pausing_anywhere_changes_no_byte(sizes: list[int], steps: list[tuple[str, int]], chunk: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen"))
        listening = peer.application.conversations[0]
        bodies = [numbered(size) for size in sizes]
        raw = b"".join(map(message, bodies))
        position = 0
        for step, amount in steps:
            if step == "pause":
                listening.call.pause()
            elif step == "resume":
                listening.call.resume()
            elif step == "turn":
                await peer.turn()
            else:
                part = raw[position : position + amount]
                peer.send(data_frame(1, part), chunk)
                position += len(part)
        peer.send(data_frame(1, raw[position:], True), chunk)
        listening.call.resume()
        await peer.turn()
        assert listening.messages == bodies
        assert listening.ended
        listening.call.finish()
        await peer.turn()
        peer.leaves_nothing()

    run(test())


def test_a_service_that_pauses_at_every_message() -> None:
    async def test() -> None:
        peer = RawPeer()

        def react(listening: Conversation, body: bytes) -> None:
            listening.call.pause()
            peer.connection.call_soon(listening.call.resume)

        peer.application.on_message = react
        raw = message(b"ab") * 30_000
        peer.send(peer.open(1, "/Listen") + data_frame(1, raw, True))
        listening = peer.application.conversations[0]
        await until(lambda: listening.ended)
        assert listening.messages == [b"ab"] * 30_000
        listening.call.finish()
        await peer.turn()
        peer.leaves_nothing()

    run(test())


def test_what_is_kept_for_a_paused_call_counts() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_partial_bytes=3 * MEGABYTE))
        for stream_id in (1, 3, 5, 7):
            peer.send(peer.open(stream_id, "/Listen"))
            peer.application.conversations[-1].call.pause()
        for stream_id in (1, 3, 5, 7):
            peer.send(data_frame(stream_id, message(bytes(MEGABYTE))))
        await peer.turn()
        assert peer.service.partial_bytes <= 3 * MEGABYTE
        refused = sorted(peer.core.unfinished)
        assert refused
        assert {peer.status(stream_id)[0] for stream_id in refused} == {8}
        for conversation in peer.application.conversations:
            conversation.call.resume()
        await peer.turn()
        for conversation in peer.application.conversations:
            conversation.call.finish()
        await peer.turn()
        peer.leaves_nothing()

    run(test())


# Limits and accounts


@pytest.mark.parametrize("size", [1, 5, 8, 1000])
def test_messages_up_to_the_limit_are_taken(size: int) -> None:
    async def test() -> None:
        for way in (1, 3, 2000):
            peer = Peer(GrpcLimits(max_message_bytes=1000))
            for length in (999, 1000, 1001):
                stream_id = peer.call("/Echo")
                raw = message(bytes(length))
                try:
                    peer.data(stream_id, raw, size=way * size, end=True)
                except Exception:
                    # The server was faster.
                    assert length == 1001
                answer = await peer.answer(stream_id)
                assert answer.status == (8 if length == 1001 else 0)
            peer.leaves_nothing()

    run(test())


def test_partial_messages_are_bounded_together() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_partial_bytes=1_000_000))
        other = RawPeer(service=peer.service, application=peer.application)
        for one in (peer, other):
            for stream_id in range(1, 9, 2):
                one.send(one.open(stream_id) + data_frame(stream_id, message(bytes(400_000))[:200_005], False))
                assert peer.service.partial_bytes <= 1_000_000
        await peer.turn()
        statuses = [one.status(i)[0] for one in (peer, other) for i in sorted(one.core.unfinished)]
        assert statuses == [8] * 3
        for one in (peer, other):
            for stream_id in set(one.core.streams) - one.core.unfinished:
                one.send(data_frame(stream_id, bytes(200_000), True))
        assert [len(waiting.body) for waiting in peer.application.waiting] == [400_000] * 5
        for waiting in peer.application.waiting:
            waiting.call.reply((b"",), 0)
        await peer.turn()
        peer.leaves_nothing()
        other.leaves_nothing()

    run(test())


@pytest.mark.parametrize("path", ["/Echo", "/Later", "/Talk", "/Listen"])
@pytest.mark.parametrize("size", [1, 100, 5000, 200_000])
def test_nothing_stays_accounted_for(path: str, size: int) -> None:
    """Also for a message that comes in parts and is answered at once."""

    async def test() -> None:
        peer = RawPeer()
        raw = message(numbered(250_000 if size > 100 else 300))
        peer.send(peer.open(1, path))
        for position in range(0, len(raw), size):
            last = position + size >= len(raw)
            peer.send(data_frame(1, raw[position : position + size], last))
            if not last:
                assert peer.service.partial_bytes == max(0, position + size - 5)
        assert peer.service.partial_bytes == 0
        assert not peer.service.partial_calls
        for waiting in peer.application.waiting:
            waiting.call.reply((b"",), 0)
        for conversation in peer.application.conversations:
            conversation.call.finish()
        peer.send(frame(WINDOW, 0, 0, b"\0\x7f\0\0") + frame(WINDOW, 0, 1, b"\0\x7f\0\0"))
        await peer.turn()
        peer.leaves_nothing()

    run(test())


def test_memory_that_runs_out_is_the_matter_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        peer = RawPeer()
        raw = message(bytes(5 * MEGABYTE))
        peer.send(peer.open(1) + data_frame(1, raw[:300_000]) + peer.open(3) + data_frame(3, raw[:300_000]))

        def take(nbytes: int) -> None:
            raise MemoryError

        monkeypatch.setattr(peer.service.pools.own, "take", take)
        for position in range(300_000, 3 * MEGABYTE, 300_000):
            peer.send(data_frame(1, raw[position : position + 300_000]))
        peer.send(peer.open(5) + data_frame(5, raw[:300]))
        await peer.turn()
        assert peer.status(1)[0] == peer.status(5)[0] == 8
        monkeypatch.undo()
        assert peer.service.partial_bytes == 300_000 - 5
        for position in range(300_000, len(raw), 300_000):
            peer.send(data_frame(3, raw[position : position + 300_000], position + 300_000 >= len(raw)))
        assert [len(waiting.body) for waiting in peer.application.waiting] == [5 * MEGABYTE]
        peer.application.waiting[0].call.reply((b"",), 0)
        await peer.turn()
        peer.leaves_nothing()

    run(test())


def rated(**more: int) -> GrpcLimits:
    return GrpcLimits(message_grace_s=10, min_message_bytes_per_s=1000, **more)


@pytest.mark.parametrize("raw", [b"\0", b"\0\0\0\0", message(bytes(10_000))[:5], message(bytes(10_000))[:6]])
@pytest.mark.parametrize("path", ["/Echo", "/Listen"])
def test_a_message_that_never_ends_is_given_up(path: str, raw: bytes) -> None:
    async def test() -> None:
        peer = RawPeer(rated())
        peer.send(peer.open(1, path) + data_frame(1, raw) + peer.unary(3))
        peer.pass_time(9)
        assert 1 in peer.core.streams
        peer.pass_time(2)
        await peer.turn()
        code, text = peer.status(1)
        assert code == 1
        assert "too slowly" in text
        # One that waits for its answer is not given up.
        assert 3 in peer.core.streams
        assert all(one.cancelled == 1 for one in peer.application.conversations)
        peer.application.waiting[0].call.reply((b"",), 0)
        peer.leaves_nothing()

    run(test())


def test_a_message_that_comes_fast_enough_may_take_its_time() -> None:
    async def test() -> None:
        peer = RawPeer(rated())
        raw = message(bytes(60_000))
        peer.send(peer.open(1))
        for position in range(0, len(raw), 2000):
            peer.send(data_frame(1, raw[position : position + 2000], position + 2000 >= len(raw)))
            peer.pass_time(1)
        assert len(peer.application.waiting) == 1
        # Every message of a stream has a time of its own.
        peer.send(peer.open(3, "/Listen"))
        for _ in range(30):
            peer.send(data_frame(3, message(b"x" * 100)[:50]))
            peer.pass_time(5)
            peer.send(data_frame(3, message(b"x" * 100)[50:]))
        assert len(peer.application.conversations[0].messages) == 30
        peer.pass_time(1000)
        assert 3 in peer.core.streams

    run(test())


@pytest.mark.parametrize("size", [75, 80, 1000])
def test_a_stream_that_is_never_between_two_messages_goes_on(size: int) -> None:
    """Each chunk ends within a message, so something is half sent at all times."""

    async def test() -> None:
        peer = RawPeer(rated())
        raw = b"".join(message(b"%010d" % i) for i in range(100 * size // 15))
        peer.send(peer.open(1, "/Listen") + data_frame(1, raw[:7]))
        sent = 7
        for _ in range(90):
            sent += size - size % 15
            peer.send(data_frame(1, raw[sent - (size - size % 15) : sent]))
            assert peer.service.partial_calls
            peer.pass_time(1)
        (listening,) = peer.application.conversations
        assert not listening.cancelled
        assert listening.messages == [b"%010d" % i for i in range(sent // 15)]
        # When it stops within one, that one is given its time and no more.
        peer.pass_time(8)
        assert not listening.cancelled
        peer.pass_time(3)
        assert listening.cancelled == 1
        await peer.turn()
        code, text = peer.status(1)
        assert code == 1
        assert "too slowly" in text
        peer.leaves_nothing()

    run(test())


def test_a_message_that_waits_for_the_service_is_not_given_up() -> None:
    async def test() -> None:
        peer = RawPeer(rated())
        peer.send(peer.open(1, "/Listen") + data_frame(1, message(bytes(1000))[:500]))
        listening = peer.application.conversations[0]
        listening.call.pause()
        peer.send(data_frame(1, message(bytes(1000))[500:] + message(bytes(1000))[:3]))
        peer.pass_time(100)
        assert not listening.call.ended
        listening.call.resume()
        await peer.turn()
        assert list(map(len, listening.messages)) == [1000]
        # The rest of the next one is the caller's matter again, from now on.
        peer.pass_time(8)
        assert not listening.call.ended
        peer.pass_time(4)
        assert listening.call.ended
        await peer.turn()
        peer.leaves_nothing()

    run(test())
