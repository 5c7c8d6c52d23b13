"""What is due behind what a process said is done with it, in order, and only once for all of it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import closing
from weakref import ref

from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.execution.worker.channel import WorkerChannel
from naiad.worker.ipc.frames import DONE, FRAME, PONG
from support.event_loops import run

Take = Callable[[int, int, bytearray], object]


async def said(pieces: list[bytes], take: Take) -> WorkerChannel:
    """A channel that has heard what a process said, piece by piece."""
    server, child = socket.socketpair()
    with closing(server), closing(child):
        server.setblocking(False)
        channel = WorkerChannel("m", server, asyncio.get_running_loop(), take, lambda: None)
        try:
            for piece in pieces:
                child.sendall(piece)
                channel.read()
        finally:
            channel.close()
    return channel


def test_what_is_due_is_done_behind_all_frames() -> None:
    async def main() -> None:
        events: list[str] = []
        loop = asyncio.get_running_loop()
        end = end_of_turn_queue(loop)

        def take(kind: int, number: int, payload: bytearray) -> None:
            events.append(f"frame {number}")
            end.call(loop, lambda: events.append(f"due {number}"))

        await said([FRAME.pack(PONG, 0, 1) + FRAME.pack(PONG, 0, 2)], take)
        assert events == ["frame 1", "frame 2", "due 1", "due 2"]

    run(main())


def test_what_that_asks_for_waits_for_the_next_turn() -> None:
    async def main() -> None:
        events: list[str] = []
        loop = asyncio.get_running_loop()
        end = end_of_turn_queue(loop)

        def again() -> None:
            events.append("due")
            end.call(loop, lambda: events.append("next turn"))

        await said([FRAME.pack(PONG, 0, 1)], lambda *_: end.call(loop, again))
        assert events == ["due"]
        await asyncio.sleep(0)
        assert events == ["due", "next turn"]

    run(main())


def test_one_that_fails_takes_nobody_with_it() -> None:
    async def main() -> None:
        told: list[object] = []
        done: list[int] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        end = end_of_turn_queue(loop)
        error = ValueError("no")

        def fail() -> None:
            raise error

        def take(kind: int, number: int, payload: bytearray) -> None:
            end.call(loop, fail)
            end.call(loop, lambda: done.append(number))

        await said([FRAME.pack(PONG, 0, 7)], take)
        assert told == [error]
        assert done == [7]
        # And what was begun is over.
        end.call(loop, lambda: done.append(8))
        assert done == [7]
        await asyncio.sleep(0)
        assert done == [7, 8]

    run(main())


def test_what_cannot_be_understood_leaves_nothing_open() -> None:
    async def main() -> None:
        done: list[int] = []
        loop = asyncio.get_running_loop()
        end = end_of_turn_queue(loop)
        frames = FRAME.pack(PONG, 0, 1) + FRAME.pack(1 << 20, 0, 2)
        channel = await said([frames], lambda *_: end.call(loop, lambda: done.append(1)))
        assert channel.problem
        assert done == [1]
        end.call(loop, lambda: done.append(2))
        assert done == [1]

    run(main())


def test_frames_in_any_pieces() -> None:
    payloads = [b"", b"x", bytes(range(256)) * 3, b"last"]
    whole = b"".join(FRAME.pack(DONE, len(p), n) + p for n, p in enumerate(payloads))

    async def main() -> None:
        for size in (1, 7, 15, 16, 17, 33, 500, len(whole)):
            taken: list[tuple[int, bytes]] = []
            held: list[bytearray] = []

            def take(
                kind: int,
                number: int,
                payload: bytearray,
                taken: list[tuple[int, bytes]] = taken,
                held: list[bytearray] = held,
            ) -> None:
                taken.append((number, bytes(payload)))
                held.append(payload)

            await said([whole[at : at + size] for at in range(0, len(whole), size)], take)
            assert taken == list(enumerate(payloads))
            # Each payload is the taker's own: what came later has not changed it.
            assert [bytes(payload) for payload in held] == payloads

    run(main())


def test_a_loop_that_is_gone_is_forgotten() -> None:
    loop = asyncio.new_event_loop()
    assert end_of_turn_queue(loop) is end_of_turn_queue(loop)
    gone = ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
