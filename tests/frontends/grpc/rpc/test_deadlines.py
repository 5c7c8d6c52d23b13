"""Deadlines of many calls with one timer, on a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.clock import ManualClock, SystemClock
from naiad.frontends.grpc.rpc.deadlines import LONGEST_NS, TICK_NS, Deadlines
from support.h2_frames import START, frame, message
from support.h2_peer import RawPeer, run
from support.kept_objects import kept_of

MS = 1_000_000


class Timed:
    def __init__(self, react: Callable[[], None] | None = None) -> None:
        self.tick = 0
        self.expired = 0
        self.react = react

    def expire(self) -> None:
        self.expired += 1
        if self.react is not None:
            self.react()


class Loop:
    """Deadlines whose timer belongs to a running loop."""

    def __init__(self) -> None:
        self.clock = ManualClock(12_345)
        self.deadlines = Deadlines(self.clock)

    def advance(self, ns: int) -> None:
        self.clock.advance(ns)
        self.deadlines.expire()


def test_never_early_and_never_more_than_a_tick_late() -> None:
    async def test() -> None:
        for timeout in (0, 1, MS, TICK_NS - 1, TICK_NS, TICK_NS + 1, 7 * MS, 1000 * MS):
            loop, call = Loop(), Timed()
            loop.deadlines.add(call, timeout)
            if timeout:
                loop.advance(timeout - 1)
                assert not call.expired
                loop.advance(1)
            loop.advance(TICK_NS)
            assert call.expired == 1
            loop.advance(1000 * TICK_NS)
            assert call.expired == 1
            assert len(loop.deadlines) == 0
            loop.deadlines.close()

    run(test())


def test_a_call_that_ended_does_not_expire() -> None:
    async def test() -> None:
        loop = Loop()
        calls = [Timed() for _ in range(10)]
        for call in calls:
            loop.deadlines.add(call, 5 * MS)
        for call in calls[::2]:
            loop.deadlines.remove(call)
            loop.deadlines.remove(call)
        assert len(loop.deadlines) == 5
        loop.advance(50 * MS)
        assert [call.expired for call in calls] == [0, 1] * 5
        for call in calls:
            loop.deadlines.remove(call)
        loop.deadlines.close()

    run(test())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 100 * MS)),
            st.tuples(st.just("remove"), st.integers(0, 50)),
            st.tuples(st.just("advance"), st.integers(0, 30 * MS)),
        ),
        max_size=80,
    )
)
def test_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    async def test() -> None:
        loop = Loop()
        calls: list[tuple[Timed, int]] = []
        removed: set[int] = set()
        for step, amount in steps:
            if step == "add":
                call = Timed()
                loop.deadlines.add(call, amount)
                calls.append((call, loop.clock.now_ns() + amount))
            elif step == "remove" and calls:
                at = amount % len(calls)
                if not calls[at][0].expired:
                    removed.add(at)
                loop.deadlines.remove(calls[at][0])
            elif step == "advance":
                loop.advance(amount)
            now = loop.clock.now_ns()
            for at, (call, due) in enumerate(calls):
                if at in removed or now < due:
                    assert not call.expired
                elif now >= due + TICK_NS and step == "advance":
                    assert call.expired == 1
            open_calls = sum(not call.expired and at not in removed for at, (call, _) in enumerate(calls))
            assert len(loop.deadlines) == open_calls
        loop.deadlines.close()

    run(test())


def test_expiring_may_add_and_remove_others() -> None:
    async def test() -> None:
        loop = Loop()
        late = Timed()
        others = [Timed() for _ in range(5)]

        def react() -> None:
            loop.deadlines.add(late, 0)
            for other in others:
                loop.deadlines.remove(other)

        first = Timed(react)
        for call in (first, *others):
            loop.deadlines.add(call, MS)
        loop.deadlines.add(others[0], 100 * MS)
        loop.advance(10 * MS)
        assert first.expired == 1
        loop.advance(10 * MS)
        assert late.expired == 1
        loop.advance(200 * MS)
        assert len(loop.deadlines) == 0
        loop.deadlines.close()

    run(test())


def test_many_calls_that_end_in_time_leave_nothing() -> None:
    async def test() -> None:
        loop = Loop()
        for i in range(20_000):
            call = Timed()
            loop.deadlines.add(call, (i % 500 + 1) * TICK_NS)
            loop.deadlines.remove(call)
            loop.clock.advance(1000)
        assert len(loop.deadlines) == 0
        assert kept_of(loop.deadlines, int) < 1000
        loop.deadlines.close()

    run(test())


@pytest.mark.parametrize("timeout", [LONGEST_NS + 1, 99_999_999 * 3600 * 10**9])
def test_a_very_long_time_is_no_deadline(timeout: int) -> None:
    async def test() -> None:
        loop, call = Loop(), Timed()
        loop.deadlines.add(call, timeout)
        loop.deadlines.remove(call)
        loop.deadlines.add(call, timeout)
        loop.advance(LONGEST_NS)
        assert not call.expired
        loop.deadlines.close()

    run(test())


def test_the_timer_fires_by_itself_the_earliest_first() -> None:
    async def test() -> None:
        deadlines = Deadlines(SystemClock())
        order: list[str] = []
        done = asyncio.Event()
        deadlines.add(Timed(done.set), 60 * MS)
        deadlines.add(Timed(lambda: order.append("second")), 30 * MS)
        deadlines.add(Timed(lambda: order.append("first")), 5 * MS)
        await asyncio.wait_for(done.wait(), 30)
        assert order == ["first", "second"]
        # And again, after the timer had nothing to do.
        done.clear()
        deadlines.add(Timed(done.set), 5 * MS)
        await asyncio.wait_for(done.wait(), 30)
        deadlines.close()

    run(test())


def test_after_the_end_no_timer_is_left() -> None:
    async def test() -> None:
        deadlines = Deadlines(SystemClock())
        call = Timed()
        deadlines.add(call, 5 * MS)
        deadlines.close()
        deadlines.close()
        await asyncio.sleep(0.03)
        assert not call.expired

    run(test())


# On a connection


def opened(peer: RawPeer, stream_id: int, timeout: str, path: str = "/Later", ended: bool = True) -> None:
    peer.send(peer.open(stream_id, path, more=[("grpc-timeout", timeout)]))
    if ended:
        peer.send(frame(0, 1, stream_id, message(b"x")))


def pass_ms(peer: RawPeer, ms: int) -> None:
    peer.clock.advance(ms * MS)
    peer.service.deadlines.expire()


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("path", ["/Later", "/Listen"])
def test_a_call_ends_at_its_deadline(path: str, ended: bool) -> None:
    async def test() -> None:
        peer = RawPeer()
        opened(peer, 1, "100m", path, ended)
        opened(peer, 3, "1S", path, ended)
        pass_ms(peer, 99)
        await peer.turn()
        assert not peer.of("Headers")
        pass_ms(peer, 6)
        await peer.turn()
        assert peer.status(1) == (4, "Deadline Exceeded")
        peer.connection.quiet = 1
        peer.connection.check_time()
        await peer.turn()
        assert [one.error_code for one in peer.of("RstStream", 1)] == ([] if ended else [0])
        owners = [one.owner for one in peer.application.waiting] + list(peer.application.conversations)
        assert [owner.cancelled for owner in owners] == ([1, 0] if owners else [])
        assert 1 not in peer.core.streams
        assert 3 in peer.core.streams
        for waiting in peer.application.waiting:
            waiting.call.reply((b"fine",), 4)
        for conversation in peer.application.conversations:
            conversation.call.send((b"fine",), 4)
            conversation.call.finish()
        await peer.turn()
        if owners:
            assert peer.status(3) == (0, "")
            assert not peer.of("Data", 1)
        assert len(peer.service.deadlines) == (0 if owners else 1)
        pass_ms(peer, 5000)
        assert [owner.cancelled for owner in owners] == ([1, 0] if owners else [])

    run(test())


def test_an_owner_that_raises_does_not_keep_others_from_expiring() -> None:
    async def test() -> None:
        peer = RawPeer()
        for stream_id in (1, 3, 5, 7):
            opened(peer, stream_id, "10m")
        for waiting in peer.application.waiting:
            waiting.owner.raises = True
        pass_ms(peer, 50)
        assert [waiting.owner.cancelled for waiting in peer.application.waiting] == [1] * 4
        opened(peer, 9, "10m")
        pass_ms(peer, 50)
        await peer.turn()
        assert [peer.status(stream_id)[0] for stream_id in (1, 3, 5, 7, 9)] == [4] * 5
        assert peer.serves(11)

    run(test())


def test_a_deadline_of_nothing_passes_at_once() -> None:
    async def test() -> None:
        peer = RawPeer()
        opened(peer, 1, "0n")
        opened(peer, 3, "0n", "/Echo")
        pass_ms(peer, 6)
        await peer.turn()
        assert peer.status(1)[0] == 4
        assert peer.status(3)[0] == 0

    run(test())


@pytest.mark.parametrize("ended", [False, True])
def test_a_deadline_in_the_middle_of_an_answer(ended: bool) -> None:
    """It is told at once, not behind what the caller has not taken; that is dropped."""

    async def test() -> None:
        peer = RawPeer()
        opened(peer, 1, "10m", "/Listen", ended=ended)
        listening = peer.application.conversations[0]
        listening.call.send((b"x" * 100_000,), 100_000)
        await peer.turn()
        assert peer.core.waiting_bytes == 100_005 - 65_535
        pass_ms(peer, 50)
        listening.call.send((b"y",), 1)
        await peer.turn()
        assert peer.status(1) == (4, "Deadline Exceeded")
        assert "END_STREAM" in [one for one in peer.read() if one.stream_id == 1 and one.kind == "Headers"][-1].flags
        assert listening.cancelled == 1
        assert sum(len(one.data) for one in peer.of("Data", 1)) == 65_535
        # The windows of others count right afterwards.
        peer.send(frame(8, 0, 0, b"\0\x0f\0\0") + frame(8, 0, 1, b"\0\x0f\0\0"))
        await peer.turn()
        assert sum(len(one.data) for one in peer.of("Data", 1)) == 65_535
        peer.leaves_nothing()
        assert not peer.core.failed
        assert peer.serves(3)

    run(test())


def test_a_deadline_while_an_answer_has_no_window_at_all() -> None:
    async def test() -> None:
        peer = RawPeer(start=START[:-9] + frame(4, 0, 0, b"\0\x04\0\0\0\0"))
        opened(peer, 1, "10m", "/Listen")
        peer.application.conversations[0].call.send((b"x" * 1000,), 1000)
        await peer.turn()
        pass_ms(peer, 50)
        await peer.turn()
        assert peer.of("Data", 1) == []
        assert peer.status(1)[0] == 4
        peer.send(frame(8, 0, 1, b"\0\0\x0f\0"))
        peer.leaves_nothing()

    run(test())


def test_a_lost_connection_takes_its_deadlines_along() -> None:
    async def test() -> None:
        peer = RawPeer()
        for stream_id in range(1, 21, 2):
            opened(peer, stream_id, "1S", "/Listen" if stream_id % 4 == 1 else "/Later", ended=stream_id % 3 == 0)
        assert len(peer.service.deadlines) == 10
        peer.lose()
        assert len(peer.service.deadlines) == 0

    run(test())
