"""The buffer pool: blocks are given out again only when nothing refers to them, and the pool stays within its bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.tensor.buffer_pool import KEEP_SECONDS, BufferPool

SIZE = 600_000


def address(block: np.ndarray) -> int:
    return block.__array_interface__["data"][0]


def test_a_block_is_used_again_once_nothing_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    where = address(first)
    del first
    assert address(pool.take(SIZE)) == where


VIEWS: dict[str, Callable[[np.ndarray], object]] = {
    "block": lambda block: block,
    "view": lambda block: block[10:],
    "memoryview": lambda block: block.data[10:],
    "array over a memoryview": lambda block: np.ndarray((4,), np.float32, block.data[64:], 0),
}


@pytest.mark.parametrize("keep", VIEWS)
def test_a_block_that_is_still_seen_is_not_given_out(keep: str) -> None:
    pool = BufferPool()
    block = pool.take(SIZE)
    where = address(block)
    kept = VIEWS[keep](block)
    del block
    assert address(pool.take(SIZE)) != where
    del kept
    taken = [pool.take(SIZE) for _ in range(4)]
    assert where in [address(b) for b in taken]


def test_the_bound_holds_and_more_is_still_served() -> None:
    pool = BufferPool(limit_bytes=2 * SIZE)
    taken = [pool.take(SIZE) for _ in range(10)]
    assert len({address(b) for b in taken}) == 10
    assert pool.pooled_bytes <= 2 * SIZE


def test_sizes_that_nobody_asks_for_are_let_go() -> None:
    pool = BufferPool()
    pool.take(SIZE)
    pool.age(KEEP_SECONDS - 1)
    assert pool.pooled_bytes
    pool.take(SIZE)
    pool.age(KEEP_SECONDS - 1)
    assert pool.pooled_bytes
    pool.age(1)
    assert pool.pooled_bytes == 0


@given(st.lists(st.tuples(st.integers(1, 1 << 22), st.booleans()), max_size=30))
def test_blocks_are_large_enough_and_never_shared(wishes: list[tuple[int, bool]]) -> None:
    pool = BufferPool(limit_bytes=1 << 23)
    held: list[np.ndarray] = []
    for size, keep in wishes:
        block = pool.take(size)
        assert block.nbytes >= size
        assert block.nbytes <= size + size // 7 + 4096
        assert address(block) not in [address(b) for b in held]
        if keep:
            held.append(block)
        del block
        assert pool.pooled_bytes <= 1 << 23
