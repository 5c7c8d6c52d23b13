"""Queue policies against the rules of the model configuration, case by case, and against a simple model of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.clock import NEVER
from naiad.config.spec import BatchingSpec, QueuePolicySpec, QueueSpec
from naiad.errors import QueueFullError
from naiad.request import InferRequest, RequestOptions
from naiad.scheduling.batcher.dynamic import DynamicBatcher, SingleBatcher
from naiad.scheduling.queue.policy import PolicyQueue
from support.kept_objects import kept_of

US = 1000
REJECT = QueuePolicySpec(timeout_ns=100 * US)
DELAY = QueuePolicySpec(timeout_ns=100 * US, delays=True)
OVERRIDE = QueuePolicySpec(timeout_ns=100 * US, allows_override=True)


def request(priority: int = 0, timeout_us: int = 0, at_us: int = 0, rows: int = 1) -> InferRequest:
    options = RequestOptions((), rows, "same", priority=priority, timeout_us=timeout_us)
    return InferRequest(options, {}, queued_ns=at_us * US)


def levels(count: int = 3, default: int = 2, policy: QueuePolicySpec | None = None, **more: int) -> QueueSpec:
    return QueueSpec(count, default, policy or QueuePolicySpec(), **more)


def filled(spec: QueueSpec, *requests: InferRequest) -> PolicyQueue:
    queue = PolicyQueue(spec)
    for one in requests:
        queue.append(one)
    return queue


# Priorities


def test_a_higher_priority_is_served_first_and_equals_in_the_order_of_arrival() -> None:
    low, first, second, middle = request(3), request(1), request(1), request(2)
    queue = filled(levels(), low, first, second, middle)
    assert list(queue) == [first, second, middle, low]
    assert [queue.popleft() for _ in range(4)] == [first, second, middle, low]
    assert len(queue) == 0


@pytest.mark.parametrize("asked", [0, 4, 2**63])
def test_no_priority_or_one_that_there_is_not_is_the_default(asked: int) -> None:
    default, other, first = request(2), request(asked), request(1)
    assert list(filled(levels(), default, other, first)) == [first, default, other]


def test_priorities_count_for_nothing_without_levels() -> None:
    first, second = request(5), request(1)
    assert list(filled(QueueSpec(policy=REJECT), first, second)) == [first, second]


def test_a_batch_may_mix_levels() -> None:
    low, high = request(3), request(1)
    queue = DynamicBatcher(BatchingSpec((8,)), 8, filled(levels(), low, high))
    assert queue.take(0).batch == [high, low]


def test_the_delay_of_a_batch_is_counted_from_its_oldest_request() -> None:
    old_and_low, new_and_high = request(3, at_us=0), request(1, at_us=90)
    queue = DynamicBatcher(BatchingSpec((8,), 100 * US), 8, filled(levels(), old_and_low, new_and_high))
    assert queue.take(95 * US).wake_ns == 100 * US
    assert queue.take(100 * US).batch == [new_and_high, old_and_low]


def test_a_request_that_waited_for_long_comes_before_all_levels() -> None:
    old, newer = request(3, at_us=0), request(2, at_us=60)
    high = request(1, at_us=90)
    queue = filled(levels(max_wait_ns=50 * US), high, newer, old)
    assert queue.settle(100 * US) == []
    assert list(queue) == [old, high, newer]
    assert queue.settle(110 * US) == []
    assert list(queue) == [old, newer, high]


def test_levels_that_nobody_uses_cost_nothing() -> None:
    one = request(2**62)
    assert list(filled(levels(2**63, 1), one)) == [one]


# Sizes


def test_a_full_queue_refuses_and_takes_again_when_one_left() -> None:
    queue = filled(QueueSpec(policy=QueuePolicySpec(max_size=2)), request(), request())
    with pytest.raises(QueueFullError, match=r"^Exceeds maximum queue size$"):
        queue.append(request())
    queue.popleft()
    queue.append(request())
    assert len(queue) == 2


def test_each_level_has_a_size_of_its_own() -> None:
    spec = QueueSpec(2, 2, QueuePolicySpec(max_size=1), {1: QueuePolicySpec(max_size=2)})
    queue = filled(spec, request(1), request(1), request(2))
    for priority in (1, 2):
        with pytest.raises(QueueFullError):
            queue.append(request(priority))


def test_late_and_urgent_requests_count_for_the_size_of_their_level() -> None:
    policy = QueuePolicySpec(max_size=2, timeout_ns=100 * US, delays=True)
    queue = filled(QueueSpec(2, 2, policy, max_wait_ns=150 * US), request(2, at_us=0), request(2, at_us=60))
    assert queue.settle(160 * US) == []
    with pytest.raises(QueueFullError):
        queue.append(request(2))


def test_a_request_that_is_given_back_is_taken_whatever_the_size_and_the_time() -> None:
    queue = filled(QueueSpec(policy=QueuePolicySpec(max_size=1, timeout_ns=US)), request(at_us=100))
    again = request()
    queue.append_again(again)
    assert queue.settle(50 * US) == []
    assert again in list(queue)


# Timeouts


def test_reject_refuses_at_the_deadline_and_not_before() -> None:
    one = request(at_us=5)
    queue = filled(QueueSpec(policy=REJECT), one)
    assert queue.next_deadline_ns == 105 * US
    assert queue.settle(105 * US - 1) == []
    assert queue.settle(105 * US) == [one]
    assert len(queue) == 0
    assert queue.next_deadline_ns == NEVER


def test_delay_serves_late_requests_after_the_others_of_their_level_and_keeps_them_for_ever() -> None:
    late, low = request(1, at_us=0), request(2, at_us=80)
    in_time = request(1, at_us=80)
    queue = filled(QueueSpec(2, 2, DELAY), late, low, in_time)
    assert queue.settle(100 * US) == []
    assert list(queue) == [in_time, late, low]
    assert queue.settle(10**9 * US) == []
    assert len(queue) == 3
    assert queue.next_deadline_ns == NEVER


@pytest.mark.parametrize(
    ("policy", "asked_us", "deadline_us"),
    [
        (OVERRIDE, 0, 100),
        (OVERRIDE, 40, 40),
        (OVERRIDE, 200, 100),
        (REJECT, 40, 100),
        (QueuePolicySpec(allows_override=True), 40, 40),
        (QueuePolicySpec(allows_override=True), 0, 0),
        (QueuePolicySpec(allows_override=True), 2**64 - 1, 0),
        (QueuePolicySpec(), 40, 0),
    ],
)
def test_which_timeout_holds(policy: QueuePolicySpec, asked_us: int, deadline_us: int) -> None:
    queue = filled(QueueSpec(policy=policy), request(timeout_us=asked_us))
    assert queue.next_deadline_ns == deadline_us * US


def test_who_left_has_no_deadline() -> None:
    first, second = request(at_us=0), request(at_us=10)
    queue = filled(QueueSpec(policy=REJECT), first, second)
    assert SingleBatcher(queue).discard(first)
    assert queue.next_deadline_ns == 110 * US
    queue.popleft()
    assert queue.next_deadline_ns == NEVER
    assert queue.settle(10**6 * US) == []


def test_deadlines_of_those_who_left_are_forgotten() -> None:
    queue = PolicyQueue(QueueSpec(policy=REJECT))
    for number in range(10_000):
        queue.append(request(at_us=number))
        queue.popleft()
    assert kept_of(queue, InferRequest) < 200


def test_removing_what_is_not_there_is_an_error() -> None:
    queue = filled(QueueSpec(policy=REJECT), request())
    with pytest.raises(ValueError, match="not queued"):
        queue.remove(request())


# Against a simple model: a list, sorted when it is looked at


class Entry(NamedTuple):
    request: InferRequest
    priority: int
    arrival: int


class Simple:
    """The rules written down in the plainest way."""

    def __init__(self, spec: QueueSpec) -> None:
        self.spec = spec
        self.entries: list[Entry] = []
        self.late: list[InferRequest] = []
        self.arrivals = 0

    def append(self, one: InferRequest) -> bool:
        asked = one.options.priority
        priority = asked if 1 <= asked <= self.spec.levels else self.spec.default_level
        policy = self.spec.level_policies.get(priority, self.spec.policy)
        if policy.max_size and sum(e.priority == priority for e in self.entries) >= policy.max_size:
            return False
        self.arrivals += 1
        self.entries.append(Entry(one, priority, self.arrivals))
        return True

    def policy(self, entry: Entry) -> QueuePolicySpec:
        return self.spec.level_policies.get(entry.priority, self.spec.policy)

    def settle(self, now_ns: int) -> list[InferRequest]:
        refused = []
        over: list[tuple[int, int, Entry]] = []
        for entry in self.entries:
            timeout_ns = self.policy(entry).timeout_of(entry.request.options.timeout_us)
            deadline_ns = entry.request.queued_ns + timeout_ns
            if timeout_ns and deadline_ns <= now_ns and entry.request not in self.late:
                over.append((deadline_ns, entry.arrival, entry))
        for _, _, entry in sorted(over):
            if self.policy(entry).delays:
                self.late.append(entry.request)
            else:
                self.entries.remove(entry)
                refused.append(entry.request)
        return refused

    def order(self) -> list[InferRequest]:
        def key(entry: Entry) -> tuple[int, bool, int]:
            is_late = entry.request in self.late
            return entry.priority, is_late, self.late.index(entry.request) if is_late else entry.arrival

        return [entry.request for entry in sorted(self.entries, key=key)]

    def remove(self, one: InferRequest) -> None:
        self.entries = [entry for entry in self.entries if entry.request is not one]


policies = st.builds(
    QueuePolicySpec,
    max_size=st.integers(0, 4),
    timeout_ns=st.sampled_from([0, 50 * US, 120 * US]),
    allows_override=st.booleans(),
    delays=st.booleans(),
)
specs = st.integers(0, 3).flatmap(
    lambda count: st.builds(
        QueueSpec,
        levels=st.just(count),
        default_level=st.integers(1, count) if count else st.just(0),
        policy=policies,
        level_policies=st.dictionaries(st.integers(1, count), policies) if count else st.just({}),
    )
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 4), st.sampled_from([0, 20, 90])),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 80), st.just(0)),
    ),
    max_size=40,
)


@given(specs, steps)
def test_it_does_what_the_simple_model_does(spec: QueueSpec, actions: list[tuple[str, int, int]]) -> None:
    queue, simple, now_us = PolicyQueue(spec), Simple(spec), 0
    for action, number, timeout_us in actions:
        if action == "push":
            one = request(number, timeout_us, now_us)
            try:
                queue.append(one)
            except QueueFullError:
                assert not simple.append(one)
            else:
                assert simple.append(one)
        elif action == "pop" and len(queue):
            simple.remove(taken := queue.popleft())
            assert taken not in list(queue)
        elif action == "cancel" and len(queue):
            chosen = list(queue)[number % len(queue)]
            queue.remove(chosen)
            simple.remove(chosen)
        elif action == "wait":
            now_us += number
        assert queue.settle(now_us * US) == simple.settle(now_us * US)
        assert list(queue) == simple.order()
        assert len(queue) == len(simple.entries)
        deadline_ns = queue.next_deadline_ns
        assert deadline_ns == NEVER or deadline_ns > now_us * US
