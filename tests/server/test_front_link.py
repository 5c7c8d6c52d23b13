"""The link between a front-end process and the engine's process, over a real pair of sockets."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from naiad.errors import OptionError
from naiad.options import parse
from naiad.server.fronts.link import SEGMENT_BYTES, Handlers, Link
from naiad.server.fronts.ports import settled_ports
from naiad.server.fronts.tensors import LayoutSender, opened, received
from naiad.tensor.dtypes import DATATYPES
from naiad.tensor.packed_bytes import PackedStrings, as_strings

LAYOUT, TENSORS, NOTE = 100, 101, 102


class Pair:
    """Both ends; ``told`` has what the second one was sent."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.lost = asyncio.Event()
        self.arrived = asyncio.Event()
        self.layouts: dict[int, Any] = {}
        loop = asyncio.get_running_loop()
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        handlers: Handlers = {LAYOUT: self._layout, TENSORS: self._tensors, NOTE: self._note}
        self.first = Link("the second", ends[0], loop, {}, self.lost.set)
        self.second = Link("the first", ends[1], loop, handlers, self.lost.set)

    def close(self) -> None:
        self.first.close()
        self.second.close()

    async def next(self) -> Any:
        while not self.told:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 20)
        return self.told.pop(0)

    def _layout(self, number: int, layout: Any) -> None:
        self.layouts[number] = received(layout)

    def _tensors(self, number: int, places: Any) -> None:
        self._note(opened(self.second, self.layouts[number], places))

    def _note(self, found: Any) -> None:
        self.told.append(found)
        self.arrived.set()


def with_pair(test: Callable[[Pair], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = Pair()
        try:
            await test(pair)
        finally:
            pair.close()

    asyncio.run(run())


def test_messages_come_in_order_and_rows_that_are_alike_come_together() -> None:
    async def test(pair: Pair) -> None:
        pair.first.post((NOTE, "a"))
        for row in range(3):
            pair.first.post_row((NOTE,), (row,))
        pair.first.post((NOTE, "b"))
        assert [await pair.next() for _ in range(3)] == ["a", [(0,), (1,), (2,)], "b"]
        pair.first.post_row((NOTE,), (3,))
        assert await pair.next() == [(3,)]

    with_pair(test)


@pytest.mark.parametrize("size", [3, SEGMENT_BYTES])
def test_tensors_of_every_datatype_come_as_they_were(size: int) -> None:
    async def test(pair: Pair) -> None:
        sender = LayoutSender(pair.first, LAYOUT)
        for datatype in DATATYPES:
            given = np.array([b"%d" % n for n in range(size)], np.object_) if datatype.is_bytes else None
            array = (np.arange(size) % 7).astype(datatype.numpy) if given is None else given
            for _ in range(2):
                number, places = sender.send({"X": array, "Y": array[::-1]})
                pair.first.post((TENSORS, number, places))
            for _ in range(2):
                found = await pair.next()
                assert found["X"].dtype == array.dtype
                assert np.array_equal(np.asarray(found["X"]), array)
                assert np.array_equal(np.asarray(found["Y"]), array[::-1])

    with_pair(test)


def test_strings_that_are_packed_stay_packed() -> None:
    async def test(pair: Pair) -> None:
        raw = (1).to_bytes(4, "little") + b"x"
        packed = as_strings(PackedStrings(2000 * raw, (2000,), "a tensor"))
        number, places = LayoutSender(pair.first, LAYOUT).send({"X": packed})
        pair.first.post((TENSORS, number, places))
        found = await pair.next()
        assert bytes(found["X"].raw) == 2000 * raw

    with_pair(test)


def test_shared_memory_is_used_again_once_nothing_refers_to_it() -> None:
    async def test(pair: Pair) -> None:
        used: set[int] = set()
        # The release comes back in some later turn, so a few segments may be made before one is used again.
        for _ in range(1000):
            place = pair.first.place(bytes(SEGMENT_BYTES))
            assert isinstance(place, tuple)
            if place[0] in used:
                return
            used.add(place[0])
            pair.first.post((NOTE, place))
            data = pair.second.open(await pair.next())
            assert len(data) == SEGMENT_BYTES
            del data
        pytest.fail("no segment was used again")

    with_pair(test)


def test_each_end_hears_that_the_other_is_gone() -> None:
    async def test(pair: Pair) -> None:
        pair.first.close()
        await asyncio.wait_for(pair.lost.wait(), 20)
        assert not pair.second.is_open
        # Nothing happens any more.
        pair.second.post((NOTE, 1))
        await asyncio.sleep(0)

    with_pair(test)


def test_datatypes_are_the_same_objects_in_another_process() -> None:
    assert all(pickle.loads(pickle.dumps(datatype)) is datatype for datatype in DATATYPES)


def test_ports_of_any_number_are_settled_and_taken_ones_refused() -> None:
    settled = settled_ports(parse(["--http-port=0", "--grpc-port=0", "--model-repository=x"], {}))
    try:
        assert settled.options.http_port
        assert settled.options.reuse_grpc_port
    finally:
        settled.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match="already in use"):
            settled_ports(
                parse([f"--http-port={port}", "--http-address=127.0.0.1", "--grpc-port=0", "--model-repository=x"], {})
            )


def test_auto_is_a_front_end_for_four_cores() -> None:
    assert parse(["--model-repository=x"], {}).frontend_count == 1
    assert parse(["--model-repository=x", "--frontend-processes=3"], {}).frontend_count == 3
    assert parse(["--model-repository=x", "--frontend-processes=auto"], {}).frontend_count >= 1
    with pytest.raises(OptionError):
        parse(["--model-repository=x", "--frontend-processes=0"], {})
