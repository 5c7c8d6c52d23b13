"""Messages cut out of data, however it comes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.wire.grpc.compression import MessageTooLargeError
from naiad.wire.grpc.messages import BadPrefixError, MessageReader
from naiad.worker.ipc.buffer_pool import BufferPool
from support.h2_frames import message, numbered

LIMIT = 8 << 20
MEGABYTE = 1 << 20


class NoRoom(BufferPool):
    """A pool that has no memory left from the nth time on."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def take(self, nbytes: int):  # type: ignore[no-untyped-def]
        if not self.left:
            raise MemoryError
        self.left -= 1
        return super().take(nbytes)


def only(pool: BufferPool) -> Callable[[int, memoryview], BufferPool]:
    return lambda size, beginning: pool


def fed(reader: MessageReader, data: bytes) -> Iterator[tuple[bytes, bool]]:
    """All messages that end in ``data``, and whether they were marked as compressed."""
    view, position = memoryview(data), 0
    while position < len(view):
        used, found = reader.feed(view[position:])
        assert used > 0
        position += used
        if found is not None:
            yield bytes(found), reader.compressed


bodies = st.lists(st.tuples(st.binary(max_size=30), st.booleans(), st.sampled_from([1, 1, 1, 100, 3000])), max_size=10)


@settings(max_examples=200, deadline=None)
@given(bodies, st.lists(st.integers(0, 300_000), max_size=20))
def test_messages_come_out_as_they_went_in(parts: list[tuple[bytes, bool, int]], cuts: list[int]) -> None:
    expected = [(body * repeated, compressed) for body, compressed, repeated in parts]
    raw = b"".join(message(body, flag) for body, flag in expected)
    places = sorted({cut % (len(raw) + 1) for cut in cuts})
    reader = MessageReader(only(BufferPool()), LIMIT)
    found: list[tuple[bytes, bool]] = []
    for start, end in zip([0, *places], [*places, len(raw)], strict=True):
        found += fed(reader, raw[start:end])
        whole = sum(5 + len(body) for body, _ in found)
        assert reader.is_within_message == (whole < end)
        assert reader.waiting_bytes == max(0, end - whole - 5)
    assert found == expected
    assert reader.target() is None


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 3 * MEGABYTE),
    st.lists(st.tuples(st.sampled_from(["feed", "direct", "append"]), st.integers(1, 400_000)), max_size=30),
)
def test_a_long_message_by_all_ways(length: int, steps: list[tuple[str, int]]) -> None:
    body = numbered(length)
    raw = memoryview(message(body))
    reader = MessageReader(only(BufferPool()), LIMIT)
    position = 0
    found = None
    for how, size in [*steps, ("feed", len(raw))]:
        part = raw[position : position + size]
        target = reader.target()
        if not len(part):
            break
        if how == "direct" and target is not None:
            part = part[: len(target)]
            target[: len(part)] = part
            found = reader.advance(len(part))
        elif how == "append" and reader.append(bytearray(b"..") + part, 2, 2 + len(part)):
            pass
        else:
            used, found = reader.feed(part)
            part = part[:used]
        position += len(part)
        assert reader.waiting_bytes == (0 if found is not None else max(0, position - 5))
        assert (found is None) == (position < len(raw))
    while found is None:
        used, found = reader.feed(raw[position:])
        position += used
    assert bytes(found) == body


def test_the_end_of_a_long_message_is_aligned() -> None:
    import numpy as np

    for length in (100_000, 2 * MEGABYTE + 3):
        reader = MessageReader(only(BufferPool()), LIMIT)
        raw = message(bytes(length))
        list(fed(reader, raw[:50]))
        _, found = reader.feed(memoryview(raw)[50:])
        assert isinstance(found, memoryview)
        end = np.frombuffer(found, np.uint8).__array_interface__["data"][0] + length
        assert end % 64 == 0


def test_a_message_belongs_to_who_gets_it() -> None:
    reader = MessageReader(only(BufferPool()), LIMIT)
    data = bytearray(message(b"first") + message(b"second")[:7])
    _, first = reader.feed(memoryview(data))
    reader.feed(memoryview(data)[10:])
    data[:] = bytes(len(data))
    _, second = reader.feed(memoryview(b"cond"))
    assert (bytes(first or b""), bytes(second or b"")) == (b"first", b"second")


@pytest.mark.parametrize("length", [101, 102, 2**31, 2**32 - 1])
def test_too_long(length: int) -> None:
    reader = MessageReader(only(BufferPool()), 100)
    with pytest.raises(MessageTooLargeError, match=f"{length} bytes, the server takes 100") as caught:
        list(fed(reader, struct.pack(">BI", 0, length)))
    assert caught.value.grpc_code == 8


def test_just_short_enough() -> None:
    assert [body for body, _ in fed(MessageReader(only(BufferPool()), 100), message(b"x" * 100))] == [b"x" * 100]


@pytest.mark.parametrize("flag", [2, 3, 128, 255])
def test_a_flag_that_is_none(flag: int) -> None:
    with pytest.raises(BadPrefixError, match=str(flag)) as caught:
        list(fed(MessageReader(only(BufferPool()), 100), message(b"", flag)))
    assert caught.value.grpc_code == 13


def test_a_long_length_alone_takes_no_such_memory() -> None:
    reader = MessageReader(only(BufferPool()), 2**31 - 1)
    reader.feed(memoryview(struct.pack(">BI", 0, 2**31 - 1)))
    target = reader.target()
    assert target is not None
    assert len(target) <= MEGABYTE
    assert reader.waiting_bytes == 0
    assert reader.is_within_message


def test_no_memory_for_a_message() -> None:
    reader = MessageReader(only(NoRoom(0)), LIMIT)
    with pytest.raises(MemoryError):
        list(fed(reader, message(bytes(100))[:50]))
    assert reader.waiting_bytes == 0
    reader = MessageReader(only(NoRoom(1)), LIMIT)
    raw = message(bytes(3 * MEGABYTE))
    with pytest.raises(MemoryError):
        list(fed(reader, raw[:500]))
        list(fed(reader, raw[500:]))
