"""Batches for a framework's process: large inputs stay where they came in, and the process puts them together."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from naiad.backends.out_of_process.batch_codec import BatchResponseWriter, read_whole
from naiad.backends.out_of_process.input_memory import InputMemory
from naiad.errors import BackendError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.ragged import JoinedInput
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.gathered import write_gathered
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.request import InferRequest, RequestOptions
from naiad.worker.ipc import frames as p
from naiad.worker.ipc.arena import Arena
from naiad.worker.ipc.frame_body import locate
from naiad.worker.ipc.mmap import mapped_alone
from naiad.worker.ipc.schemas import Schemas, read_schema
from naiad.worker.ipc.segments import ServerSegments
from naiad.worker.ipc.types import Place
from support.loaded_models import spec, tensor
from support.worker_frames import payloads_by_kind

Array = np.ndarray[Any, Any]
VALUES = 10_000
MODEL = spec(inputs=(tensor("x", dims=(-1,)),), outputs=(tensor("y", dims=(-1,)),))


@pytest.fixture
def arena() -> Iterator[Arena]:
    found = Arena(1 << 20)
    yield found
    found.close()


def in_arena(arena: Arena, values: Array) -> Array:
    """The values in a block."""
    block = arena.allocate(-(-values.nbytes // 4096) * 4096)
    assert block is not None
    found: Array = block[: values.nbytes].view(values.dtype).reshape(values.shape)
    found[:] = values
    return found


def rows(count: int, values: int = VALUES) -> Array:
    """Rows of which no two are alike."""
    return np.arange(count * values, dtype=np.float32).reshape(count, values)


class Process:
    """The process's side: reads what is sent to it, and counts what it puts together."""

    def __init__(self) -> None:
        self.released: list[int] = []
        self.joined: list[int] = []
        self._segments = ServerSegments(self.released.append)
        self._schemas: Schemas = {}
        self._memory = InputMemory()

    def read(self, frames: Sequence[OutgoingFrame]) -> Array:
        """The input of the batch."""
        for whole, descriptor in frames:
            kind, _, number = p.FRAME.unpack_from(whole)
            payload = bytearray(whole[p.FRAME.size :])
            size = int.from_bytes(payload[:8], "little")
            if kind == p.SCHEMA:
                self._schemas[number] = read_schema(payload)
            elif kind == p.ARENA:
                self._segments.add_arena(number, mapped_alone(descriptor, size))
            elif kind == p.SEGMENT:
                self._segments.add(number, descriptor, size)
        batch = read_whole(payload, self._schemas, partial(locate, self._segments.open), MODEL, self._join)
        return batch.requests[0].inputs["x"]

    def _join(self, parts: list[Place], size: int) -> Place:
        self.joined.append(len(parts))
        place = self._memory.joined(parts, size)
        parts.clear()
        return place


def sent(arena: Arena, parts: list[Array]) -> list[OutgoingFrame]:
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    frames: list[OutgoingFrame] = []
    write_gathered(BatchWriter(MODEL, arena), MODEL, 1, {"x": JoinedInput(parts, shape)}, ["y"], frames)
    return frames


def test_parts_in_the_arena_are_put_together_by_the_process(arena: Arena) -> None:
    whole, process = rows(5), Process()
    parts = [in_arena(arena, whole[:2]), in_arena(arena, whole[2:3]), in_arena(arena, whole[3:])]
    found = process.read(sent(arena, parts))
    assert np.array_equal(found, whole)
    assert process.joined == [3]
    assert not np.shares_memory(found, parts[0])
    # Released before the model runs.
    assert len(process.released) == 3 and min(process.released) >= p.LENT


def test_parts_from_elsewhere_come_along(arena: Arena) -> None:
    whole, process = rows(4), Process()
    assert np.array_equal(process.read(sent(arena, [whole[:1], in_arena(arena, whole[1:3]), whole[3:]])), whole)
    assert process.joined == [3]
    assert sorted(number >= p.LENT for number in process.released) == [False, False, True]


@pytest.mark.parametrize("case", ["none in the arena", "one alone", "one is small"])
def test_other_inputs_arrive_in_one_piece(arena: Arena, case: str) -> None:
    whole, process = rows(4), Process()
    parts = {
        "none in the arena": lambda: [whole[:2], whole[2:]],
        "one alone": lambda: [in_arena(arena, whole)],
        "one is small": lambda: [in_arena(arena, part) for part in np.split(rows(2, 100), 2)],
    }[case]()
    wanted = rows(2, 100) if case == "one is small" else whole
    assert np.array_equal(process.read(sent(arena, parts)), wanted)
    assert process.joined == []


@pytest.fixture
def writer() -> Iterator[tuple[BatchResponseWriter, socket.socket]]:
    """The writer of a process, and the server's end of its connection."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    yield BatchResponseWriter(ours, lambda: None), theirs
    for end in (ours, theirs):
        end.close()


def batch_with(error: BackendError | None = None, **results: Array) -> Batch:
    batch = Batch([InferRequest(RequestOptions(("y",), 1), {})])
    batch.results, batch.error = results, error
    return batch


def test_an_output_in_reserved_memory_is_not_copied(writer: tuple[BatchResponseWriter, socket.socket]) -> None:
    out, theirs = writer
    size = 4 * VALUES
    memory = out.reserve(size)
    assert memory is not None
    y = memory.view(np.float32).reshape(1, VALUES)
    y[:] = rows(1)
    out.send_results(1, batch_with(y=y), MODEL)
    # The segment comes by itself, with the first byte of its frame.
    _, descriptors, _, _ = socket.recv_fds(theirs, p.FRAME.size + 8, 8)
    (mapped,) = [mapped_alone(descriptor, size) for descriptor in descriptors]
    data = theirs.recv(1 << 16)
    assert np.array_equal(mapped.view(np.float32), rows(1)[0])
    number, _, offset, nbytes = p.PLACE.unpack_from(
        payloads_by_kind(data)[p.RESPONSES], p.COUNT.size + p.RESPONSE_HEAD.size
    )
    assert (number, offset, nbytes) == (1, 0, size)
    # No second segment while the first is not released.
    assert out.pool.is_waiting
    out.pool.release([1])
    assert out.pool.has_free(size)


@pytest.mark.parametrize("case", ["error", "elsewhere"])
def test_reserved_memory_without_an_output_is_free_again(
    writer: tuple[BatchResponseWriter, socket.socket], case: str
) -> None:
    out, _ = writer
    assert out.reserve(100) is None
    for number in range(3):
        assert out.reserve(4 * VALUES) is not None
        if case == "error":
            out.send_results(number, batch_with(BackendError("no")), MODEL)
        else:
            out.send_results(number, batch_with(y=rows(1)), MODEL)
            # As the server does with what it was sent; other numbers are ignored.
            out.pool.release([1] if number % 2 else [2])
        assert out.pool.has_free(4 * VALUES)
        assert not out.pool.is_waiting


def lent(writer: BatchResponseWriter, count: int) -> list[Array]:
    """Tensors of 100 bytes in the memory of the server."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 1 << 16)
    writer.inputs.add_arena(1, mapped_alone(descriptor, 1 << 16))
    return [writer.inputs.open(p.LENT + n, 1 << p.ARENA_SHIFT | 128 * n, 100) for n in range(count)]


def test_inputs_are_released_in_one_piece_with_the_response(writer: tuple[BatchResponseWriter, socket.socket]) -> None:
    out, theirs = writer
    batch = Batch([InferRequest(RequestOptions(("y",), 1), {"x": lent(out, 1)[0].view(np.float32).reshape(1, 25)})])
    batch.results = {"y": rows(1, 25)}
    out.send_results(1, batch, MODEL)
    theirs.settimeout(10)
    data = theirs.recv(1 << 16)
    # In that order, which two writes would not have.
    assert list(payloads_by_kind(data)) == [p.SCHEMA, p.RELEASE, p.RESPONSES]
    assert p.NUMBERS.unpack(payloads_by_kind(data)[p.RELEASE]) == (p.LENT,)


def test_parts_are_released_with_the_next_frame() -> None:
    ours, theirs = socket.socketpair()
    writer = BatchResponseWriter(ours, lambda: None)
    parts = lent(writer, 2)
    writer.drop(parts)
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    writer.post(p.FRAME.pack(p.PONG, 0, 7))
    data = theirs.recv(1000)
    at = data.index(p.FRAME.pack(p.RELEASE, 8, 0)) + p.FRAME.size
    assert sorted(n for (n,) in p.NUMBERS.iter_unpack(data[at : at + 8])) == [p.LENT, p.LENT + 1]
    for end in (ours, theirs):
        end.close()
