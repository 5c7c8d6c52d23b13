"""The buffer pool of the server and of workers: blocks are used again only when nothing refers to them, and the pool
stays within its bound."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.worker.ipc.buffer_pool import KEEP_S, LOOKED_AT, POOL_BYTES, BufferPool

Block = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
SIZE = 600_000


def address_of(block: Block) -> int:
    return int(block.__array_interface__["data"][0])


def test_it_is_used_again_when_nobody_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    address = address_of(first)
    view = first[10:20].view(np.int8)
    del first
    # A view of it is enough.
    second = pool.take(SIZE)
    assert address_of(second) != address
    del view
    third = pool.take(SIZE - 10)
    # The last one that was taken comes first, and it is in use.
    assert address_of(third) == address


VIEWS: dict[str, Callable[[Block], object]] = {
    "block": lambda block: block,
    "view": lambda block: block[10:],
    "memoryview": lambda block: block.data[10:],
    "array over a memoryview": lambda block: np.ndarray((4,), np.float32, block.data[64:], 0),
    "array over a block": lambda block: np.ndarray((8,), np.uint8, block, 64),
    "other shape": lambda block: block[:64].reshape(8, 8),
}


@pytest.mark.parametrize("keep", VIEWS)
def test_a_block_that_is_still_seen_is_not_given_out(keep: str) -> None:
    pool = BufferPool()
    block = pool.take(SIZE)
    address, kept = address_of(block), VIEWS[keep](block)
    del block
    others = [pool.take(SIZE) for _ in range(LOOKED_AT + 1)]
    assert address not in map(address_of, others)
    del kept
    assert address in [address_of(pool.take(SIZE)) for _ in range(4)]


def test_the_same_few_are_used_by_one_after_another() -> None:
    pool = BufferPool()
    burst = [pool.take(SIZE) for _ in range(40)]
    addresses = {address_of(block) for block in burst}
    del burst
    assert {address_of(pool.take(SIZE)) for _ in range(40)} <= addresses
    assert len({address_of(pool.take(SIZE)) for _ in range(40)}) == 1
    again = [pool.take(SIZE) for _ in range(40)]
    assert len({address_of(block) for block in again} & addresses) >= 40 - LOOKED_AT


def test_a_larger_block_that_is_free_is_taken_rather_than_a_new_one() -> None:
    pool = BufferPool(larger=4)
    taken = [pool.take(n * SIZE) for n in (1, 3, 5)]
    addresses = [address_of(block) for block in taken]
    first = pool.take(2 * SIZE)
    assert address_of(first) not in addresses
    taken.clear()
    # The smallest that will do, and none of more than four times the size.
    second = pool.take(2 * SIZE)
    assert address_of(second) == addresses[1]
    third = pool.take(2 * SIZE)
    assert address_of(third) == addresses[2]
    del first, second, third
    assert address_of(pool.take(SIZE // 8)) not in addresses


def test_the_bound_holds_and_more_is_still_served() -> None:
    pool = BufferPool(limit_bytes=2 * SIZE)
    taken = [pool.take(SIZE) for _ in range(10)]
    assert len({address_of(block) for block in taken}) == 10
    assert pool.pooled_bytes <= 2 * SIZE


def test_it_is_bounded_and_let_go() -> None:
    pool = BufferPool()
    huge, small = pool.take(POOL_BYTES + 1), pool.take(4096)
    gone, kept = weakref.ref(huge), weakref.ref(small)
    del huge, small
    assert gone() is None
    assert kept() is not None
    # The first look finds it free, the second that it was not needed since.
    pool.age(KEEP_S)
    assert kept() is not None
    pool.age(KEEP_S)
    assert kept() is None
    assert pool.pooled_bytes == 0


def test_sizes_that_nobody_asks_for_are_let_go() -> None:
    pool = BufferPool()
    pool.take(SIZE)
    for _ in range(4):
        pool.age(KEEP_S - 1)
        assert pool.pooled_bytes
        pool.take(SIZE)
    for _ in range(2 * KEEP_S):
        pool.age(1)
    assert pool.pooled_bytes == 0


def test_what_was_let_go_makes_room() -> None:
    pool = BufferPool()
    half = POOL_BYTES // 2
    for size in (half, half - (8 << 20), half - (16 << 20)):
        block = pool.take(size)
        kept = weakref.ref(block)
        del block
        assert kept() is not None
        pool.age(KEEP_S)
        pool.age(KEEP_S)
        assert kept() is None


def test_what_is_needed_all_the_time_stays() -> None:
    pool = BufferPool()
    burst = [pool.take(4096) for _ in range(4)]
    kept = [weakref.ref(block) for block in burst]
    del burst
    for _ in range(3):
        pool.take(4096)
        pool.age(KEEP_S)
    assert sum(block() is not None for block in kept) == 1


def test_what_a_model_keeps_does_not_count_for_long() -> None:
    pool = BufferPool()
    kept = [pool.take(POOL_BYTES // 4) for _ in range(4)]
    # There is no room for more, which is given all the same.
    block = pool.take(4096)
    untracked = weakref.ref(block)
    del block
    assert untracked() is None
    pool.age(KEEP_S)
    block = pool.take(4096)
    tracked = weakref.ref(block)
    del block
    assert tracked() is not None
    assert len({address_of(block) for block in kept}) == 4
    kept[0][:] = 1
    assert not any(address_of(pool.take(POOL_BYTES // 4)) == address_of(block) for block in kept)


def test_threads_may_let_it_go() -> None:
    pool = BufferPool()
    for number in range(2000):
        blocks = [pool.take(4096) for _ in range(3)]
        for value, block in enumerate(blocks):
            block[:] = value
        assert [int(block[7]) for block in blocks] == [0, 1, 2]
        del block
        if number % 100 == 0:
            letter = threading.Thread(target=blocks.clear)
            letter.start()
            letter.join()
        pool.age(1)


@given(st.lists(st.tuples(st.integers(0, 1 << 22), st.booleans()), max_size=30))
def test_blocks_are_large_enough_and_never_shared(wishes: list[tuple[int, bool]]) -> None:
    pool = BufferPool(limit_bytes=1 << 23)
    held: list[Block] = []
    for size, keep in wishes:
        block = pool.take(size)
        assert block.nbytes >= size
        assert block.nbytes <= size + size // 7 + 4096
        assert address_of(block) not in map(address_of, held)
        if keep:
            held.append(block)
        del block
        pool.age(0.5)
        assert pool.pooled_bytes <= 1 << 23
