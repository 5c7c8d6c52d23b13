"""The arena: blocks that come and go, memory that is given back, and the pools of front ends that use it."""

from __future__ import annotations

import os
import resource
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.worker.ipc import frames as p
from naiad.worker.ipc import lent_outputs
from naiad.worker.ipc.arena import ARENA_BYTES, Arena
from naiad.worker.ipc.buffer_pool import KEEP_S
from naiad.worker.ipc.lent_memory import LentMemory
from naiad.worker.ipc.lent_outputs import LentOutputs
from naiad.worker.ipc.lent_tensors import LentTensors
from naiad.worker.ipc.memory_release import memory_release
from naiad.worker.ipc.mmap import mapped
from naiad.worker.ipc.receive_pools import ReceivePools
from naiad.worker.ipc.segments import anonymous_file
from support.worker_peer import Child, Request, eventually, worker_of, write_execute

PAGE = 4096
BLOCK = 16 * PAGE
ROOM = 8 * BLOCK


@pytest.fixture
def arena() -> Iterator[Arena]:
    found = Arena(ROOM)
    yield found
    found.close()


def pages(arena: Arena) -> int:
    """How many pages of memory it takes."""
    with descriptor_of(arena) as descriptor:
        return os.fstat(descriptor).st_blocks * 512 // PAGE


@contextmanager
def descriptor_of(arena: Arena) -> Iterator[int]:
    """A descriptor of its memory, which has a block in it."""
    block = arena.allocate(PAGE)
    found = None if block is None else arena.find(block)
    assert found is not None
    descriptor = found[0].descriptor()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def offset_of(arena: Arena, array: np.ndarray[tuple[int, ...], np.dtype[Any]]) -> int:
    """Where an array lies in it; -1 for elsewhere."""
    found = arena.find(array)
    return -1 if found is None else found[1]


def allocated(arena: Arena, size: int, value: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A block with that value in every byte."""
    block = arena.allocate(size)
    assert block is not None
    block[:] = value
    return block


def test_another_mapping_sees_what_is_in_a_block(arena: Arena) -> None:
    allocated(arena, BLOCK)
    second = allocated(arena, 2 * BLOCK, 2)
    with descriptor_of(arena) as descriptor:
        other = mapped(descriptor, arena.size)
    begin, end = offset_of(arena, second[5:]), offset_of(arena, second) + 2 * BLOCK
    assert begin == offset_of(arena, second) + 5
    assert (other[begin:end] == 2).all()
    other[begin] = 3
    assert second[5] == 3
    assert offset_of(arena, np.empty(10, np.uint8)) == -1


def test_a_block_is_used_again_when_nothing_refers_to_it(arena: Arena) -> None:
    blocks = [allocated(arena, BLOCK) for _ in range(8)]
    assert arena.allocate(PAGE) is None
    assert sorted([offset_of(arena, block) for block in blocks]) == list(range(0, ROOM, BLOCK))
    view = blocks[3][8:].view(np.float32)
    del blocks[2:5]
    # A view of the one in the middle stays: two blocks that do not touch.
    assert arena.allocate(2 * BLOCK) is None
    del view
    assert arena.allocate(3 * BLOCK) is not None
    del blocks
    # The last one is large: a thread releases its memory.
    eventually(lambda: arena.allocate(ROOM) is not None, "all of it is free")


def test_memory_of_dropped_blocks_is_given_back(arena: Arena) -> None:
    blocks = [allocated(arena, BLOCK, 7) for _ in range(2)]
    assert pages(arena) == 32
    # In any thread.
    thread = threading.Thread(target=blocks.pop)
    thread.start()
    thread.join()
    arena.collect()
    assert pages(arena) == 16
    assert (blocks[0] == 7).all()


def test_a_large_block_is_used_again_when_its_memory_was_given_back(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[Callable[[], object]] = []
    monkeypatch.setattr(memory_release, "release", lambda size, work: due.append(work))
    allocated(arena, ROOM)
    assert arena.allocate(PAGE) is None and arena.is_empty
    (work,) = due
    work()
    assert not allocated(arena, ROOM, 0).any()
    # The rest of it comes after the end of the arena.
    arena.close()
    due.pop()()


def test_blocks_outlive_the_arena(arena: Arena) -> None:
    block = allocated(arena, BLOCK, 9)
    arena.close()
    assert (block == 9).all()
    assert arena.allocate(BLOCK) is None
    assert offset_of(arena, block) == -1


def test_no_such_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    arena, pools = Arena(ROOM), ReceivePools()
    assert arena.allocate(BLOCK) is None
    block = pools.choose(BLOCK, lambda: arena).take(BLOCK)
    block[:] = 1
    assert offset_of(arena, block) == -1


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [(resource.RLIM_INFINITY, ARENA_BYTES), (1 << 40, ARENA_BYTES), ((1 << 30) + 999, 1 << 26), (100_000, 4096)],
)
def test_an_arena_leaves_room_for_other_memory(monkeypatch: pytest.MonkeyPatch, limit: int, wanted: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert Arena().size == wanted


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_blocks_never_overlap(steps: list[tuple[bool, int]]) -> None:
    arena, held = Arena(ROOM), []
    try:
        for number, (drops, size) in enumerate(steps):
            if drops and held:
                held.pop(size % len(held))
                continue
            if (block := arena.allocate(size * PAGE)) is not None:
                block[:] = number
                held.append((block, number))
            del block
        assert all((block == number).all() for block, number in held)
        held.clear()
        # All of it is free again, in one piece: large blocks as soon as a thread has given their memory back.
        eventually(lambda: arena.allocate(ROOM) is not None, "all of it is free")
    finally:
        arena.close()


# Pools


def test_small_bodies_stay_in_memory_of_the_process(arena: Arena) -> None:
    pools = ReceivePools()
    assert pools.choose(p.SEGMENT_BYTES - 1, lambda: arena) is pools.own
    assert pools.choose(BLOCK, None) is pools.own
    assert pools.choose(BLOCK, lambda: None) is pools.own
    assert offset_of(arena, pools.choose(BLOCK, lambda: arena).take(BLOCK)) == 0


def test_a_full_arena_is_no_error(arena: Arena) -> None:
    pool = ReceivePools().choose(BLOCK, lambda: arena)
    blocks = [pool.take(BLOCK) for _ in range(9)]
    assert [offset_of(arena, block) >= 0 for block in blocks] == [True] * 8 + [False]
    del blocks[4]
    assert offset_of(arena, pool.take(BLOCK)) == 4 * BLOCK


def test_the_pool_of_a_closed_arena_is_dropped(arena: Arena) -> None:
    pools = ReceivePools()
    pool = pools.choose(BLOCK, lambda: arena)
    taken = pool.take(BLOCK)
    free = weakref.ref(pool.take(BLOCK))
    arena.close()
    pools.age(1)
    del pool
    assert free() is None
    taken[:] = 1


def test_a_pool_without_blocks_is_dropped(arena: Arena) -> None:
    pools = ReceivePools()
    block = pools.choose(BLOCK, lambda: arena).take(BLOCK)
    block[:] = 1
    pools.age(KEEP_S)
    assert pages(arena) == 16
    del block
    for _ in range(2):
        pools.age(KEEP_S)
    assert pages(arena) == 0
    first = pools.choose(BLOCK, lambda: arena)
    assert first is pools.choose(BLOCK, lambda: arena)


# In a worker

CHANGES = """
answers = []
for r in requests:
    x = r.inputs()[0].as_numpy()
    x += 1
    if r.request_id() == "keep":
        self.kept = x
    elif r.request_id() == "drop":
        self.kept = None
    answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x[:3])]))
return answers
"""


ARENA = 3
"""The number of the arena."""


def introduce(child: Child, arena: Arena) -> None:
    with descriptor_of(arena) as descriptor:
        child.send(p.ARENA, ARENA, arena.size.to_bytes(8, "little"), [descriptor])


def lend(child: Child, batch: int, arena: Arena, *lent: tuple[int, int, int, str]) -> None:
    """Hand a batch over with inputs in the arena: number, offset, size and id of each request."""
    parts = [p.COUNT.pack(len(lent), 0)]
    for index, (number, offset, size, request_id) in enumerate(lent):
        form = child.form({"inputs": [["IN", "FP32", [size // 4]]], "outputs": []})
        parts.append(p.REQUEST.pack(index + 1, form, len(request_id), 0))
        parts += [p.PLACE.pack(p.LENT + number, 0, ARENA << p.ARENA_SHIFT | offset, size), request_id.encode()]
    child.send(p.EXECUTE, batch, b"".join(parts))


def test_tensors_are_used_in_place_and_released_one_by_one(tmp_path: Path, arena: Arena) -> None:
    values = allocated(arena, 2 * BLOCK).view(np.float32)
    values[:] = np.arange(values.size)
    half = values.size // 2
    with worker_of(write_execute(tmp_path, CHANGES)) as child:
        introduce(child, arena)
        # Two tensors of one block: each is released when nothing refers to it.
        lend(child, 1, arena, (0, 0, BLOCK, "keep"), (1, BLOCK, BLOCK, ""))
        first, second = child.responses(child.expect(p.RESPONSES))
        assert first.outputs["OUT"].tolist() == [1, 2, 3]
        assert second.outputs["OUT"].tolist() == [half + 1, half + 2, half + 3]
        assert values[:2].tolist() == [1, 2] and values[half] == half + 1
        assert child.released == [p.LENT + 1]
        # The same place under another number, while the first is kept.
        lend(child, 2, arena, (7, BLOCK, BLOCK, "drop"))
        assert child.responses(child.expect(p.RESPONSES))[0].outputs["OUT"][0] == half + 2
        assert sorted(child.released) == [p.LENT, p.LENT + 1, p.LENT + 7]


def test_a_batch_that_need_not_run_releases_what_it_was_lent(tmp_path: Path, arena: Arena) -> None:
    allocated(arena, BLOCK)
    gate = tmp_path / "gate"
    body = f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\n" + CHANGES
    with worker_of(write_execute(tmp_path, body)) as child:
        introduce(child, arena)
        child.execute(1, [Request({"IN": np.zeros(3, np.float32)})])
        lend(child, 2, arena, (4, 0, BLOCK, ""))
        child.send(p.SKIP, 2)
        gate.touch()
        child.expect(p.RESPONSES)
        child.run([Request({"IN": np.zeros(3, np.float32)})], batch=3)
        assert child.released == [p.LENT + 4]


RETURNS = """
answers = []
for r in requests:
    what = r.request_id()
    x = r.inputs()[0].as_numpy()
    x += 1
    if what == "kept":
        self.kept = x[:1]
    outputs = {
        "part": lambda: [x[100:-100]],
        "cast": lambda: [x.view(np.int32).reshape(2, -1)],
        "twice": lambda: [x[8000:], x],
        "steps": lambda: [x[::2]],
        "new": lambda: [x * 1],
    }.get(what, lambda: [x])()
    tensors = [pb_utils.Tensor("OUT%d" % i, output) for i, output in enumerate(outputs)]
    answers.append(pb_utils.InferenceResponse([r.inputs()[0]] if what == "input" else tensors))
return answers
"""


def places_of(child: Child, payload: bytes, outputs: int) -> list[tuple[int, ...]]:
    """The places of the outputs of a frame with one response."""
    at = p.COUNT.size + p.RESPONSE_HEAD.size
    return [p.PLACE.unpack_from(payload, at + i * p.PLACE.size) for i in range(outputs)]


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("", [(0, BLOCK)]),
        ("input", [(0, BLOCK)]),
        ("part", [(400, BLOCK - 800)]),
        ("cast", [(0, BLOCK)]),
        ("twice", [(32000, BLOCK - 32000), (0, BLOCK)]),
    ],
)
def test_an_output_in_an_input_stays_there(
    tmp_path: Path, arena: Arena, what: str, wanted: list[tuple[int, int]]
) -> None:
    values = allocated(arena, 2 * BLOCK).view(np.float32)
    with worker_of(write_execute(tmp_path, RETURNS)) as child:
        introduce(child, arena)
        lend(child, 1, arena, (5, BLOCK, BLOCK, what))
        found = places_of(child, child.expect(p.RESPONSES).payload, len(wanted))
        assert found == [(p.LENT + 5, p.IN_INPUT, offset, size) for offset, size in wanted]
        # The input is released behind the response that lies in it.
        assert child.released == []
        child.run([Request({"IN": np.zeros(3, np.float32)})], batch=2)
        assert child.released == [p.LENT + 5]
    assert (values[-BLOCK // 4 :] == 1).all() and not values[: BLOCK // 4].any()


@pytest.mark.parametrize("what", ["kept", "steps", "new"])
def test_other_outputs_are_copied(tmp_path: Path, arena: Arena, what: str) -> None:
    values = allocated(arena, BLOCK).view(np.float32)
    values[:] = np.arange(values.size)
    with worker_of(write_execute(tmp_path, RETURNS)) as child:
        introduce(child, arena)
        lend(child, 1, arena, (5, 0, BLOCK, what))
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert response.segments == [1]
        assert np.array_equal(response.outputs["OUT0"], np.arange(1, values.size + 1)[:: 2 if what == "steps" else 1])
        assert child.released == ([] if what == "kept" else [p.LENT + 5])
        lend(child, 2, arena, (6, 0, BLOCK, "kept"))
        child.expect(p.RESPONSES)
        # What was kept before is kept no more.
        assert child.released == [p.LENT + 5]


# Outputs of workers


def test_an_output_may_lie_in_an_arena_of_another_process() -> None:
    arenas: list[LentMemory] = []
    outputs = LentOutputs(arenas)
    arena = LentMemory(anonymous_file(PAGE), PAGE)
    assert arena.bytes is not None
    assert outputs.find(arena.bytes) is None
    arenas.append(arena)
    assert outputs.find(arena.bytes[7:]) == (arena, 7)
    arena.close()


def test_outputs_are_found_in_the_segments_that_are_kept() -> None:
    outputs = LentOutputs([])
    assert not outputs.has_room
    outputs.is_on = True
    kept = []
    for size in (PAGE, 3 * PAGE, BLOCK):
        kept.append(LentMemory(anonymous_file(size), size))
        outputs.add(kept[-1])
    for memory in kept:
        assert memory.bytes is not None
        assert outputs.find(memory.bytes) == (memory, 0)
        assert outputs.find(memory.bytes[-7:]) == (memory, memory.size - 7)
    assert outputs.find(np.empty(10, np.uint8)) is None
    inner = kept[1].bytes
    assert inner is not None
    outputs.drop(kept[1])
    assert outputs.find(inner) is None
    assert outputs.find(kept[0].bytes) == (kept[0], 0)  # type: ignore[arg-type]
    for memory in (kept[0], kept[2]):
        outputs.drop(memory)


def test_a_bound_of_kept_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_outputs, "MAX_SEGMENTS", 1)
    outputs = LentOutputs([])
    outputs.is_on = True
    memory = LentMemory(anonymous_file(PAGE), PAGE)
    outputs.add(memory)
    assert not outputs.has_room
    outputs.drop(memory)
    assert outputs.has_room
    with pytest.raises(OSError):
        memory.descriptor()


def test_what_is_lent_is_held_until_it_is_released(arena: Arena) -> None:
    lent, introduced = LentTensors(), []

    def introduce(number: int, descriptor: int, size: int) -> None:
        os.close(descriptor)
        introduced.append((number, size))

    block = allocated(arena, BLOCK)
    gone = weakref.ref(block)
    first, second = lent.lend(block[8:], arena, introduce), lent.lend(block, arena, introduce)
    assert first is not None and second is not None
    assert first[1] - second[1] == 8 and introduced == [(1, ROOM)]
    assert lent.lend(np.zeros(BLOCK, np.uint8), arena, introduce) is None
    del block
    lent.release([second[0]])
    assert gone() is not None
    assert offset_of(arena, lent.open(first[0], 100, BLOCK - 108)) == 108
    with pytest.raises(ValueError):
        lent.open(first[0], 100, BLOCK - 107)
    lent.release([first[0]])
    # A number that is not lent, or no more.
    lent.release([first[0]])
    assert gone() is None
    with pytest.raises(ValueError):
        lent.open(first[0], 0, 1)
    again = lent.lend(allocated(arena, BLOCK), arena, introduce)
    assert again is not None and again[0] in (first[0], second[0])
    assert lent.forget_closed() == []
    arena.close()
    assert lent.forget_closed() == [1] and not lent.has_memories


def test_memory_of_another_process_is_adopted_until_it_is_closed(arena: Arena) -> None:
    other = LentMemory(anonymous_file(PAGE), PAGE)
    inner = other.bytes
    assert inner is not None
    assert arena.find(inner) is None
    arena.adopt(other)
    assert arena.find(inner[3:]) == (other, 3)
    other.close()
    assert arena.find(inner) is None
