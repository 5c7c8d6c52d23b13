"""The dynamic batcher against the rules of the model configuration, case by case and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.spec import BatchingSpec
from naiad.request import InferRequest
from naiad.scheduling.batcher.dynamic import DynamicBatcher, SingleBatcher
from support.queued_requests import request

US = 1000
KEY = [("x", (16,))]


def batcher(preferred: tuple[int, ...] = (8,), delay_us: int = 0, max_rows: int = 8) -> DynamicBatcher:
    return DynamicBatcher(BatchingSpec(preferred, delay_us * US), max_rows)


def rows_taken(queue: DynamicBatcher, now_ns: int = 0) -> list[int]:
    return [r.options.rows for r in queue.take(now_ns).batch]


def push(queue: DynamicBatcher, *rows: int, key: object = "same", at_ns: int = 0) -> None:
    for n in rows:
        queue.push(request(n, key, at_ns))


def test_nothing_queued_gives_nothing() -> None:
    decision = batcher().take(0)
    assert decision.batch == []
    assert decision.wake_ns == 0


def test_without_delay_whatever_is_there_goes_at_once() -> None:
    queue = batcher()
    push(queue, 1, 1, 1)
    assert rows_taken(queue) == [1, 1, 1]
    assert len(queue) == 0


def test_never_more_rows_than_max_batch_size() -> None:
    queue = batcher(max_rows=8)
    push(queue, 5, 3, 1)
    assert rows_taken(queue) == [5, 3]
    assert rows_taken(queue) == [1]


def test_a_request_that_does_not_fit_any_more_ends_the_batch() -> None:
    queue = batcher(delay_us=100)
    push(queue, 5, 4)
    assert rows_taken(queue) == [5]


def test_a_delay_waits_for_more() -> None:
    queue = batcher(delay_us=100)
    push(queue, 1, 1, at_ns=7)
    decision = queue.take(50 * US)
    assert decision.batch == []
    assert decision.wake_ns == 7 + 100 * US
    assert len(queue) == 2


def test_when_the_delay_is_over_what_is_there_goes() -> None:
    queue = batcher(delay_us=100)
    push(queue, 1, 1)
    assert rows_taken(queue, 100 * US) == [1, 1]


def test_the_delay_is_counted_from_the_oldest() -> None:
    queue = batcher(delay_us=100)
    push(queue, 1, at_ns=0)
    push(queue, 1, at_ns=90 * US)
    assert rows_taken(queue, 100 * US) == [1, 1]


def test_a_preferred_size_goes_without_waiting() -> None:
    queue = batcher(preferred=(4, 8), delay_us=100)
    push(queue, 1, 1, 1, 1)
    assert rows_taken(queue) == [1, 1, 1, 1]


def test_the_largest_preferred_size_that_is_reached_counts() -> None:
    queue = batcher(preferred=(2, 4), delay_us=100)
    push(queue, 1, 1, 1, 1, 1)
    assert len(rows_taken(queue)) == 4
    assert queue.take(0).batch == []


def test_a_preferred_size_leaves_the_rest_also_without_delay() -> None:
    queue = batcher(preferred=(4,), delay_us=0)
    push(queue, *[1] * 6)
    assert len(rows_taken(queue)) == 4
    assert len(rows_taken(queue)) == 2


def test_after_the_delay_preferred_sizes_do_not_matter() -> None:
    queue = batcher(preferred=(4,), delay_us=100)
    push(queue, *[1] * 6)
    assert len(rows_taken(queue, 100 * US)) == 6


def test_passing_the_largest_preferred_size_sends_what_was_before_it() -> None:
    queue = batcher(preferred=(4,), delay_us=100)
    push(queue, 3, 3)
    assert rows_taken(queue) == [3]


def test_other_shapes_are_not_mixed_and_end_the_batch() -> None:
    queue = batcher(delay_us=100)
    push(queue, 1, 1, key="a")
    push(queue, 1, key="b")
    push(queue, 1, key="a")
    assert rows_taken(queue) == [1, 1]
    assert rows_taken(queue) == [1]
    assert queue.take(0).batch == []


def test_equal_shape_keys_need_not_be_the_same_object() -> None:
    queue = batcher()
    push(queue, 1, key=tuple(KEY))
    push(queue, 1, key=tuple(KEY))
    assert rows_taken(queue) == [1, 1]


def test_discard_takes_a_queued_request_out() -> None:
    queue = batcher(delay_us=100)
    first, second = request(), request()
    queue.push(first)
    queue.push(second)
    assert queue.discard(first)
    assert not queue.discard(first)
    assert queue.take(100 * US).batch == [second]


def test_drain_empties() -> None:
    queue = batcher(delay_us=100)
    push(queue, 1, 2)
    assert [r.options.rows for r in queue.drain()] == [1, 2]
    assert len(queue) == 0


def test_single_batcher_runs_requests_alone_in_order() -> None:
    queue = SingleBatcher()
    requests = [request(n) for n in (3, 1, 2)]
    for one in requests:
        queue.push(one)
    for expected in ([requests[0]], [requests[1]], [requests[2]], []):
        assert queue.due(0) == (len(expected), 0)
        assert queue.take(0).batch == expected


@st.composite
def workloads(draw: st.DrawFn) -> tuple[int, tuple[int, ...], int, list[tuple[int, str, int]]]:
    max_rows = draw(st.integers(1, 12))
    preferred = draw(st.sets(st.integers(1, max_rows), min_size=1, max_size=3))
    delay = draw(st.sampled_from([0, 50, 200]))
    requests = draw(
        st.lists(st.tuples(st.integers(1, max_rows), st.sampled_from("ab"), st.integers(0, 100)), max_size=30)
    )
    return max_rows, tuple(sorted(preferred)), delay, requests


@given(workloads())
def test_every_request_leaves_once_in_order_in_a_legal_batch(
    workload: tuple[int, tuple[int, ...], int, list[tuple[int, str, int]]],
) -> None:
    max_rows, preferred, delay_us, arrivals = workload
    queue = batcher(preferred, delay_us, max_rows)
    now = 0
    sent: list[InferRequest] = []
    taken: list[InferRequest] = []
    for rows, key, gap_us in arrivals:
        now += gap_us * US
        one = request(rows, key, now)
        sent.append(one)
        queue.push(one)
        taken += check_legal(queue, now, max_rows, preferred, delay_us)
    while len(queue):
        due = queue.due(now)
        decision = queue.take(now)
        assert due == (len(decision.batch), decision.wake_ns)
        if decision.batch:
            check_batch(decision.batch, max_rows)
            taken += decision.batch
        else:
            assert decision.wake_ns > now, "a batcher that waits must say until when"
            now = decision.wake_ns
    assert [id(r) for r in taken] == [id(r) for r in sent]


def check_legal(
    queue: DynamicBatcher, now: int, max_rows: int, preferred: tuple[int, ...], delay_us: int
) -> list[InferRequest]:
    before = queue.drain()
    for one in before:
        queue.push(one)
    due = queue.due(now)
    decision = queue.take(now)
    assert due == (len(decision.batch), decision.wake_ns), "a look is right, and takes nothing"
    if not decision.batch:
        assert delay_us, "without a delay nothing waits"
        assert now - before[0].queued_ns < delay_us * US, "nothing waits longer than the delay"
        assert sum(r.options.rows for r in before) < max(preferred), "the largest preferred size never waits"
        return []
    check_batch(decision.batch, max_rows)
    return decision.batch


def check_batch(batch: list[InferRequest], max_rows: int) -> None:
    assert sum(r.options.rows for r in batch) <= max_rows
    assert len({r.options.shape_key for r in batch}) == 1


@pytest.mark.parametrize("waiting", [1, 3])
def test_an_arrival_that_completes_a_preferred_size_ends_the_wait(waiting: int) -> None:
    queue = batcher(preferred=(4,), delay_us=1000)
    push(queue, *[1] * waiting)
    assert queue.take(1).batch == []
    push(queue, *[1] * (4 - waiting), at_ns=2)
    assert len(rows_taken(queue, 3)) == 4


def test_a_lower_limit_applies_to_what_waits() -> None:
    queue = batcher(preferred=(4, 8), delay_us=100)
    push(queue, 1, 1, 1)
    assert rows_taken(queue) == []
    queue.limit(2, 100 * US)
    assert rows_taken(queue) == [1, 1]
    # One more than the limit still runs, alone.
    push(queue, 3)
    assert rows_taken(queue, 100 * US) == [1]
    assert rows_taken(queue, 100 * US) == [3]


def test_a_limit_that_is_raised_again_has_the_preferred_sizes_back() -> None:
    queue = batcher(preferred=(4,), max_rows=8)
    queue.limit(2, 0)
    queue.limit(8, 100 * US)
    push(queue, 1, 1, 1, 1, 1)
    assert rows_taken(queue) == [1, 1, 1, 1]
    assert rows_taken(queue) == []


def test_without_a_delay_what_waits_goes() -> None:
    queue = batcher(delay_us=100)
    push(queue, 1)
    assert rows_taken(queue) == []
    queue.limit(8, 0)
    assert rows_taken(queue) == [1]
