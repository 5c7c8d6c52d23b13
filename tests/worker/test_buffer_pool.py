"""Memory of a Python model's process that is used again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from naiad.worker.ipc import buffer_pool as module
from naiad.worker.ipc.buffer_pool import LOOKED_AT, POOL_BYTES, BlockPool

SIZE = 100_000


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing has to be free for a while to be let go."""
    monkeypatch.setattr(module, "KEEP_FREE_S", -1.0)
    yield


def address_of(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> int:
    return int(array.ctypes.data)


def test_it_is_used_again_when_nobody_refers_to_it() -> None:
    memory = BlockPool()
    first = memory.take(SIZE)
    address = address_of(first)
    view = first[10:20].view(np.int8)
    del first
    # A view of it is enough.
    second = memory.take(SIZE)
    assert address_of(second) != address
    del view
    third = memory.take(SIZE - 10)
    # The last one that was taken comes first, and it is in use.
    assert address_of(third) == address
    assert third.nbytes == SIZE - 10


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 8192])
def test_it_is_as_large_as_was_asked_for(size: int) -> None:
    memory = BlockPool()
    taken = [memory.take(size) for _ in range(3)]
    assert [block.nbytes for block in taken] == [size] * 3
    assert len({address_of(block) for block in taken}) == 3


def test_what_refers_to_it_in_other_ways_keeps_it() -> None:
    memory = BlockPool()
    keepers = (memoryview, lambda block: np.ndarray((8,), np.uint8, block, 64), lambda block: block[:64].reshape(8, 8))
    for keep in keepers:
        block = memory.take(SIZE)
        address, kept = address_of(block), keep(block)
        del block
        others = [memory.take(SIZE) for _ in range(LOOKED_AT + 1)]
        assert address not in map(address_of, others)
        del kept, others


def test_the_same_few_are_used_by_one_after_another() -> None:
    memory = BlockPool()
    burst = [memory.take(SIZE) for _ in range(40)]
    addresses = {address_of(block) for block in burst}
    del burst
    assert {address_of(memory.take(SIZE)) for _ in range(40)} <= addresses
    assert len({address_of(memory.take(SIZE)) for _ in range(40)}) == 1
    again = [memory.take(SIZE) for _ in range(40)]
    assert len({address_of(block) for block in again} & addresses) >= 40 - LOOKED_AT


def test_it_is_bounded_and_let_go(impatient: None) -> None:
    memory = BlockPool()
    huge, small = memory.take(POOL_BYTES + 1), memory.take(4096)
    gone, kept = weakref.ref(huge.base), weakref.ref(small)
    del huge, small
    assert gone() is None
    assert kept() is not None
    # The first look finds it free, the second that it was not needed since.
    memory.trim()
    assert kept() is not None
    memory.trim()
    assert kept() is None


def test_what_was_let_go_makes_room(impatient: None) -> None:
    memory = BlockPool()
    half = POOL_BYTES // 2
    for size in (half, half + 4096, half + 8192):
        block = memory.take(size)
        kept = weakref.ref(block)
        del block
        assert kept() is not None
        memory.trim()
        memory.trim()
        assert kept() is None


def test_what_is_needed_all_the_time_stays(impatient: None) -> None:
    memory = BlockPool()
    burst = [memory.take(4096) for _ in range(4)]
    kept = [weakref.ref(block) for block in burst]
    del burst
    for _ in range(3):
        memory.take(4096)
        memory.trim()
    assert sum(block() is not None for block in kept) == 1


def test_what_a_model_keeps_does_not_count_for_long(impatient: None) -> None:
    memory = BlockPool()
    kept = [memory.take(POOL_BYTES // 4) for _ in range(4)]
    # There is no room for more, which is given all the same.
    block = memory.take(4096)
    untracked = weakref.ref(block)
    del block
    assert untracked() is None
    memory.trim()
    block = memory.take(4096)
    tracked = weakref.ref(block)
    del block
    assert tracked() is not None
    assert len({address_of(block) for block in kept}) == 4
    kept[0][:] = 1
    assert not any(address_of(memory.take(POOL_BYTES // 4)) == address_of(block) for block in kept)


def test_threads_may_let_it_go_and_trim() -> None:
    memory, over = BlockPool(), threading.Event()

    def trim() -> None:
        while not over.is_set():
            memory.trim()

    trimmer = threading.Thread(target=trim)
    trimmer.start()
    try:
        for _ in range(2000):
            blocks = [memory.take(4096) for _ in range(3)]
            for number, block in enumerate(blocks):
                block[:] = number
            assert [int(block[7]) for block in blocks] == [0, 1, 2]
            letter = threading.Thread(target=blocks.clear) if _ % 100 == 0 else None
            if letter is not None:
                letter.start()
                letter.join()
    finally:
        over.set()
        trimmer.join()
