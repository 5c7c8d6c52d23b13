"""Batches that may not grow as they like: by bytes, and by rules of a model's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.assembly import PadSpec
from naiad.config.spec import BatchingSpec
from naiad.request import InferRequest, RequestOptions
from naiad.scheduling.batcher.dynamic import DynamicBatcher
from naiad.scheduling.batcher.limited import ByteLimit, LimitedBatcher

MS = 1_000_000


def queued(rows: int, length: int, key: object = "same", at_ns: int = 0) -> InferRequest:
    """A request of so many rows of so many FP32."""
    return InferRequest(RequestOptions((), rows, key), {"x": np.zeros((rows, length), np.float32)}, queued_ns=at_ns)


def taken(batcher: DynamicBatcher, requests: Sequence[InferRequest], now_ns: int = 0) -> list[list[InferRequest]]:
    """All batches until the queue is empty."""
    for request in requests:
        batcher.push(request)
    batches = []
    while len(batcher):
        batch, _ = batcher.take(now_ns)
        assert batch, "nothing may be left behind"
        batches.append(batch)
    return batches


def sizes(batches: list[list[InferRequest]]) -> list[int]:
    return [len(batch) for batch in batches]


def limited(*limits: object, max_rows: int = 8, delay_ms: int = 0, preferred: Sequence[int] = ()) -> LimitedBatcher:
    spec = BatchingSpec(tuple(preferred) or (max_rows,), delay_ms * MS)
    return LimitedBatcher(spec, max_rows, None, limits)  # type: ignore[arg-type]


class AtMost:
    """Takes so many requests; notes what is asked."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen = 0
        self.calls: list[str] = []

    def begin(self, first: InferRequest) -> None:
        self.seen = 1
        self.calls.append("begin")

    def takes(self, request: InferRequest) -> bool:
        self.seen += 1
        return self.seen <= self.count

    def end(self) -> None:
        self.calls.append("end")


def test_bytes_of_a_batch() -> None:
    requests = [queued(1, 100) for _ in range(6)]
    assert sizes(taken(limited(ByteLimit(1200, {})), requests)) == [3, 3]
    assert sizes(taken(limited(ByteLimit(1199, {})), requests)) == [2, 2, 2]


def test_a_single_request_may_have_more_bytes() -> None:
    assert sizes(taken(limited(ByteLimit(10, {})), [queued(1, 100), queued(1, 1), queued(1, 1)])) == [1, 2]


def test_padding_counts() -> None:
    """Eight short requests and a long one have few bytes, and would have many when all are as long as that one."""
    pads = {"x": PadSpec((0,), 0)}
    requests = [*(queued(1, 1) for _ in range(4)), queued(1, 1000), *(queued(1, 1) for _ in range(3))]
    assert sizes(taken(limited(ByteLimit(5000, {})), requests)) == [8]
    assert sizes(taken(limited(ByteLimit(5000, pads)), requests)) == [4, 1, 3]
    assert sizes(taken(limited(ByteLimit(5000, {"x": PadSpec((0,), 0, multiple=1000)})), requests)) == [1] * 8


def test_never_more_rows_than_the_model_takes() -> None:
    limit = ByteLimit(1 << 40, {})
    assert sizes(taken(limited(limit, max_rows=32), [queued(32, 1), queued(1, 1)])) == [1, 1]


def test_a_limit_is_begun_and_ended_around_every_look() -> None:
    limit = AtMost(2)
    assert sizes(taken(limited(limit), [queued(1, 1) for _ in range(5)])) == [2, 2, 1]
    assert limit.calls == ["begin", "end"] * 3
    batcher = limited(limit)
    batcher.push(queued(1, 1))
    assert batcher.due(0) == (1, 0)
    assert limit.calls == ["begin", "end"] * 4


def test_a_batch_that_a_limit_closes_does_not_wait() -> None:
    batcher = limited(AtMost(2), delay_ms=100)
    for _ in range(2):
        batcher.push(queued(1, 1))
    assert batcher.take(0).batch == [], "it may still grow"
    batcher.push(queued(1, 1))
    assert len(batcher.take(0).batch) == 2


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b"])), max_size=20),
    st.sets(st.integers(1, 8), min_size=1),
    st.integers(0, 3),
)
def test_without_a_no_it_decides_as_the_plain_batcher(
    asked: list[tuple[int, str]], preferred: set[int], now_ms: int
) -> None:
    spec = BatchingSpec(tuple(sorted(preferred)), 2 * MS)
    plain, other = DynamicBatcher(spec, 8), LimitedBatcher(spec, 8, None, [ByteLimit(1 << 40, {}), AtMost(99)])
    requests = [queued(rows, 1, key) for rows, key in asked]
    for request in requests:
        plain.push(request)
        other.push(request)
    while len(plain):
        decision = plain.take(now_ms * MS)
        assert decision == other.take(now_ms * MS)
        if not decision.batch:
            break


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), min_size=1, max_size=30), st.integers(1, 2000))
def test_no_batch_is_above_its_bounds(asked: list[tuple[int, int]], most: int) -> None:
    pad = PadSpec((0,), 0, multiple=4)
    requests = [queued(rows, length) for rows, length in asked]
    batches = taken(limited(ByteLimit(most, {"x": pad})), requests)
    assert [r for batch in batches for r in batch] == requests
    for batch in batches:
        rows = sum(r.options.rows for r in batch)
        padded = 4 * rows * pad.size(max(r.inputs["x"].shape[1] for r in batch))
        assert rows <= 8
        assert len(batch) == 1 or padded <= most
