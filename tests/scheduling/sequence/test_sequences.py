"""Sequences, their slots and their batches: case by case from the configuration's rules, and whatever happens."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from naiad.clock import NEVER
from naiad.config.spec import SequenceSpec
from naiad.errors import InvalidArgumentError
from naiad.request import SEQUENCE_END, SEQUENCE_START, InferRequest, RequestOptions
from naiad.scheduling.sequence import slots as sequences_of_a_model
from naiad.scheduling.sequence.strategies import Row, SequenceBatcher, make_sequence_batcher

US = 1000
IDLE_US = 1000


class Table:
    """A batcher and what its owner does around it."""

    def __init__(
        self, *, oldest: bool = False, instances: int = 1, slots: int = 2, max_batch_size: int = 2, **more: object
    ) -> None:
        spec = SequenceSpec(oldest, slots, IDLE_US * US, preferred_batch_sizes=(max(max_batch_size, 1),), **more)  # type: ignore[arg-type]
        self.iterative = spec.iterative
        self.batcher: SequenceBatcher = make_sequence_batcher(spec, instances, max_batch_size)
        self.sequences = self.batcher.sequences
        self.now_us = 0

    def send(
        self, name: int | str, start: bool = False, end: bool = False, key: str = "same", timeout_us: int = 0
    ) -> InferRequest:
        flags = 0 if self.iterative else SEQUENCE_START * start | SEQUENCE_END * end
        options = RequestOptions((), 1, key, flags=flags, correlation_id=name, timeout_us=timeout_us)
        request = InferRequest(options, {}, queued_ns=self.now_us * US)
        self.batcher.placed(self.sequences.push(request, "m"))
        return request

    def take(self, instance: int = 0) -> list[InferRequest | None]:
        return [row.request for row in self.rows(instance)]

    def rows(self, instance: int = 0) -> list[Row]:
        count, look_ns = self.batcher.due(instance, self.now_us * US)
        rows, wake_ns = self.batcher.take(instance, self.now_us * US)
        assert (bool(count), look_ns) == (bool(rows), wake_ns), "a look is right, and takes nothing"
        return rows

    def done(self, request: InferRequest | None) -> None:
        assert request is not None
        sequence = self.sequences.of(request)
        assert sequence is not None
        if self.iterative and not sequence.waiting:
            self.sequences.end(sequence, self.now_us * US)
        following = self.sequences.finish(sequence, self.now_us * US)
        self.batcher.placed(sequence)
        if following is not None:
            self.batcher.placed(following)

    def cancel(self, request: InferRequest) -> list[InferRequest]:
        sequence = self.sequences.of(request)
        if sequence is None:
            return []
        if not self.iterative or sequence.running is request:
            self.batcher.discard(sequence)
        if sequence.running is request:
            return []
        if self.iterative:
            following = self.sequences.withdraw(request, self.now_us * US)
            self.batcher.placed(sequence)
            if following is not None:
                self.batcher.placed(following)
            return [request]
        given_up, following = self.sequences.end(sequence, self.now_us * US)
        if following is not None:
            self.batcher.placed(following)
        return given_up

    def wait(self, us: int) -> list[InferRequest]:
        self.now_us += us
        refused, placed = self.sequences.settle(self.now_us * US)
        for sequence in placed:
            self.batcher.placed(sequence)
        return refused

    def run(self, instance: int = 0) -> list[InferRequest | None]:
        """One batch from its beginning to its end."""
        batch = self.take(instance)
        for request in batch:
            if request is not None:
                self.done(request)
        return batch


strategies = pytest.mark.parametrize("oldest", [False, True], ids=["direct", "oldest"])


@strategies
def test_requests_of_a_sequence_run_one_after_the_other(oldest: bool) -> None:
    table = Table(oldest=oldest)
    first, second = table.send(1, start=True), table.send(1)
    assert table.take() == [first]
    assert table.take() == []
    table.done(first)
    assert table.take() == [second]


@strategies
def test_a_request_of_an_unknown_sequence_must_start_it(oldest: bool) -> None:
    table = Table(oldest=oldest)
    text = r"inference request for sequence 7 to model 'm' must specify the START flag on the first request"
    with pytest.raises(InvalidArgumentError, match=text):
        table.send(7)
    table.send(7, start=True, end=True)
    with pytest.raises(InvalidArgumentError, match="START"):
        table.send(7)


@strategies
def test_sequences_spread_over_the_instances_by_the_index_of_their_slot(oldest: bool) -> None:
    table = Table(oldest=oldest, instances=2)
    requests = [table.send(name, start=True) for name in "abcd"]
    assert table.take(0) == [requests[0], requests[2]]
    assert table.take(1) == [requests[1], requests[3]]


@strategies
def test_without_a_free_slot_whole_sequences_wait_in_order(oldest: bool) -> None:
    table = Table(oldest=oldest, slots=1, max_batch_size=1)
    first = table.send("a", start=True, end=True)
    waiting = [table.send("b", start=True), table.send("c", start=True, end=True), table.send("b", end=True)]
    assert table.sequences.backlog == 2
    assert [table.run() for _ in range(4)] == [[first], [waiting[0]], [waiting[2]], [waiting[1]]]
    assert table.sequences.backlog == 0


@strategies
def test_after_its_end_an_id_begins_a_new_sequence(oldest: bool) -> None:
    table = Table(oldest=oldest)
    first, second = table.send(1, start=True, end=True), table.send(1, start=True)
    before = table.sequences.of(first)
    assert table.run() == [first]
    assert table.run() == [second]
    assert table.sequences.of(second) is not before


@strategies
def test_an_id_that_is_used_again_waits_for_the_sequence_that_had_it(oldest: bool) -> None:
    table = Table(oldest=oldest, instances=2, slots=2)
    steps = [table.send(1, start=True, end=True), table.send(1, start=True, end=True), table.send(1, start=True)]
    other = table.send(2, start=True, end=True)
    # The free slots are for others.
    assert table.sequences.backlog == 2
    assert table.take(0) == [steps[0]]
    assert table.take(0) == []
    assert table.take(1) == [other]
    table.done(steps[0])
    assert table.run(0) == [steps[1]]
    table.done(other)
    assert table.run(0) == [steps[2]]
    assert len(table.sequences) == table.sequences.backlog == 0


@strategies
def test_whoever_waits_for_a_sequence_with_its_id_joins_those_who_wait_for_a_slot(oldest: bool) -> None:
    table = Table(oldest=oldest, slots=1, max_batch_size=1)
    first, again = table.send(1, start=True, end=True), table.send(1, start=True, end=True)
    other = table.send(2, start=True, end=True)
    assert [table.run(), table.run(), table.run()] == [[first], [other], [again]]


@strategies
def test_one_that_gives_up_in_the_middle_of_those_with_its_id_keeps_their_order(oldest: bool) -> None:
    table = Table(oldest=oldest)
    steps = [table.send(1, start=True, end=True) for _ in range(4)]
    assert table.take() == [steps[0]]
    assert table.cancel(steps[1]) == [steps[1]]
    assert table.cancel(steps[3]) == [steps[3]]
    last = table.send(1, start=True)
    table.done(steps[0])
    assert [table.run(), table.run()] == [[steps[2]], [last]]


@strategies
def test_a_sequence_that_ended_from_outside_is_waited_for_while_it_runs(oldest: bool) -> None:
    table = Table(oldest=oldest)
    running, waiting = table.send(1, start=True), table.send(1)
    assert table.take() == [running]
    assert table.cancel(waiting) == [waiting]
    again = table.send(1, start=True, timeout_us=100)
    assert table.take() == []
    assert table.wait(100) == [again]
    once_more = table.send(1, start=True)
    table.done(running)
    assert table.take() == [once_more]


@strategies
def test_a_start_in_the_middle_goes_on_in_the_same_slot(oldest: bool) -> None:
    table = Table(oldest=oldest)
    first, again = table.send(1, start=True), table.send(1, start=True)
    assert [table.run(), table.run()] == [[first], [again]]


@strategies
def test_an_idle_sequence_ends_and_makes_room(oldest: bool) -> None:
    table = Table(oldest=oldest, slots=1, max_batch_size=1)
    table.send("a", start=True)
    table.run()
    waiting = table.send("b", start=True)
    assert table.wait(IDLE_US - 1) == []
    assert table.take() == []
    assert table.sequences.next_ns == IDLE_US * US
    table.wait(1)
    assert table.take() == [waiting]
    with pytest.raises(InvalidArgumentError, match="START"):
        table.send("a")


@strategies
def test_a_sequence_that_runs_is_not_idle(oldest: bool) -> None:
    table = Table(oldest=oldest)
    first = table.send("a", start=True)
    assert table.take() == [first]
    table.wait(10 * IDLE_US)
    table.done(first)
    table.wait(IDLE_US - 1)
    second = table.send("a")
    assert table.take() == [second]


@strategies
def test_cancelling_a_waiting_request_ends_its_sequence(oldest: bool) -> None:
    table = Table(oldest=oldest, slots=1, max_batch_size=1)
    first = table.send("a", start=True)
    assert table.take() == [first]
    second, third = table.send("a"), table.send("a")
    other = table.send("b", start=True)
    assert table.cancel(third) == [second, third]
    assert table.take() == []
    table.done(first)
    assert table.take() == [other]
    with pytest.raises(InvalidArgumentError, match="START"):
        table.send("a")


def test_what_the_oldest_strategy_queued_but_does_not_run_can_be_cancelled() -> None:
    table = Table(oldest=True, max_queue_delay_ns=100 * US)
    first, second = table.send("a", start=True), table.send("a")
    assert table.take() == []
    assert table.cancel(first) == [first, second]
    table.wait(200)
    assert table.take() == []
    assert len(table.sequences) == 0


@strategies
def test_the_timeout_of_a_waiting_sequence_ends_it(oldest: bool) -> None:
    table = Table(oldest=oldest, slots=1, max_batch_size=1)
    running = table.send("a", start=True)
    assert table.take() == [running]
    patient = table.send("b", start=True, timeout_us=500)
    hurried = table.send("b", timeout_us=20)
    other = table.send("c", start=True, timeout_us=2**63)
    assert table.wait(19) == []
    assert table.wait(1) == [patient, hurried]
    table.wait(10**6)
    assert table.sequences.backlog == 1
    assert table.cancel(other) == [other]


# Direct


def test_direct_leaves_the_rows_of_others_empty() -> None:
    table = Table(slots=4, max_batch_size=4)
    sequences = [table.send(name, start=True) for name in "abc"]
    assert table.run() == sequences
    later = table.send("c")
    assert table.run() == [None, None, later]


def test_direct_gives_a_row_of_another_shape_its_turn_later() -> None:
    table = Table()
    first, other = table.send("a", start=True, key="x"), table.send("b", start=True, key="y")
    assert table.run() == [first, None]
    assert table.run() == [None, other]


def test_direct_lets_no_sequence_wait_for_one_of_another_shape_that_never_pauses() -> None:
    table = Table()
    (running,) = [table.send(1, start=True)]
    assert table.take() == [running]
    table.now_us += 1
    other = table.send(2, start=True, key="other")
    for _ in range(3):
        table.now_us += 1
        following = table.send(1)
        table.done(running)
        batch = table.take()
        if other in batch:
            assert batch == [None, other]
            return
        running = following
    raise AssertionError("the sequence in the lower slot goes always first")


def test_direct_waits_for_slots_no_longer_than_the_delay() -> None:
    table = Table(slots=4, max_batch_size=4, max_queue_delay_ns=100 * US, minimum_slot_utilization=0.5)
    first = table.send("a", start=True)
    decision = table.batcher.take(0, 0)
    assert (decision.rows, decision.wake_ns) == ([], 100 * US)
    second = table.send("b", start=True)
    assert table.run() == [first, second]
    third = table.send("a")
    assert table.take() == []
    table.wait(100)
    assert table.take() == [third, None]


# Oldest


def test_oldest_puts_the_requests_of_sequences_together_as_they_come() -> None:
    table = Table(oldest=True, slots=8, max_batch_size=2)
    requests = [table.send(name, start=True) for name in range(1, 5)]
    assert table.take() == requests[:2]
    assert table.take() == requests[2:]


# Iterative


def test_a_delay_ends_when_no_request_is_left_to_wait_for() -> None:
    table = Table(oldest=True, slots=4, max_batch_size=4, max_queue_delay_ns=100 * US)
    first = [table.send("a", start=True), table.send("b", start=True)]
    assert table.take() == [], "others may begin as well"
    table.wait(100)
    assert table.take() == first
    for request in first:
        table.done(request)
    second = [table.send("a")]
    assert table.take() == [], "the other sequence may go on as well"
    second.append(table.send("b"))
    assert table.take() == second
    table.done(second[0])
    third = table.send("a")
    assert table.take() == [third], "what runs can send nothing that would run now"


def test_a_delay_lasts_while_a_sequence_has_just_begun() -> None:
    table = Table(oldest=True, slots=4, max_batch_size=4, max_queue_delay_ns=100 * US)
    request = table.send("a", start=True)
    table.wait(99)
    assert table.take() == []
    table.wait(1)
    assert table.take() == [request]
    table.done(request)
    table.wait(50)
    begun = table.send("b", start=True)
    later = table.send("a")
    table.wait(99)
    assert table.take() == []
    table.wait(1)
    assert table.take() == [begun, later]


def test_iterative_requests_wait_for_the_whole_delay() -> None:
    table = Table(oldest=True, slots=4, max_batch_size=4, max_queue_delay_ns=100 * US, iterative=True)
    request = table.send(1)
    table.wait(99)
    assert table.take() == []
    table.wait(1)
    assert table.take() == [request]


@strategies
def test_a_request_that_is_given_back_runs_again_before_the_next(oldest: bool) -> None:
    table = Table(oldest=oldest, iterative=True)
    first, second = table.send(1), table.send(1)
    assert table.take() == [first]
    sequence = table.sequences.of(first)
    assert sequence is not None
    table.sequences.take_back(sequence)
    table.batcher.placed(sequence)
    assert table.take() == [first]
    assert sequence.steps == 2
    table.done(first)
    assert table.take() == [second]


# Whatever happens


class AnyOrder(RuleBasedStateMachine):
    """Callers, instances and time in any order. A slot has one sequence, a sequence one running request."""

    oldest = False
    iterative = False

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(oldest=self.oldest, instances=2, slots=2, max_batch_size=2, iterative=self.iterative)
        self.sent: dict[int, list[InferRequest]] = defaultdict(list)
        self.left: set[InferRequest] = set()
        self.running: dict[int, list[InferRequest]] = {}
        self.suspended: set[int] = set()

    @rule(instance=st.integers(0, 1))
    def suspend(self, instance: int) -> None:
        self.suspended.add(instance)
        self.table.sequences.suspend(instance)

    @rule(instance=st.integers(0, 1))
    def resume(self, instance: int) -> None:
        self.suspended.discard(instance)
        for sequence in self.table.sequences.resume(instance):
            assert sequence.slot is not None
            assert sequence.slot.instance == instance
            self.table.batcher.placed(sequence)

    @rule(name=st.integers(1, 6), start=st.booleans(), end=st.booleans(), timeout_us=st.sampled_from([0, 0, 300]))
    def send(self, name: int, start: bool, end: bool, timeout_us: int) -> None:
        try:
            request = self.table.send(name, start, end, timeout_us=timeout_us)
        except InvalidArgumentError:
            assert not start
        else:
            self.sent[name].append(request)

    @rule(instance=st.integers(0, 1))
    def take(self, instance: int) -> None:
        if instance in self.running:
            return
        requests = [request for request in self.table.take(instance) if request is not None]
        assert len(requests) <= 2
        for request in requests:
            assert request not in self.left
            sent = self.sent[int(request.options.correlation_id)]
            before = [r for r in sent[: sent.index(request)] if r not in self.left]
            assert before == [], "requests with one id keep their order, and are in no batch together"
        if requests:
            self.running[instance] = requests

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        instance = data.draw(st.sampled_from(sorted(self.running)))
        for request in self.running.pop(instance):
            self.table.done(request)
            self.left.add(request)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        live = [r for requests in self.sent.values() for r in requests if r not in self.left]
        if not live:
            return
        request = data.draw(st.sampled_from(live))
        given_up = self.table.cancel(request)
        runs = any(request in batch for batch in self.running.values())
        assert (request in given_up) != runs
        assert not self.iterative or len(given_up) <= 1
        self._leave(given_up)

    @rule(us=st.integers(1, 700))
    def wait(self, us: int) -> None:
        refused = self.table.wait(us)
        if self.iterative:
            assert all(r.queued_ns + r.options.timeout_us * US <= self.table.now_us * US for r in refused)
        self._leave(refused)

    def _leave(self, requests: list[InferRequest]) -> None:
        for request in requests:
            assert request not in self.left
            assert not any(request in batch for batch in self.running.values())
            self.left.add(request)

    @invariant()
    def nothing_is_lost(self) -> None:
        sequences = self.table.sequences
        live = sum(request not in self.left for requests in self.sent.values() for request in requests)
        assert len(sequences) == live
        placed = [s for instance in (0, 1) for s in sequences.row(instance) if s is not None]
        assert len(set(map(id, placed))) == len(placed)
        assert not (sequences._free and sequences._waiting_for_slot), "nobody waits beside a free slot"
        assert sequences._suspended.keys() == self.suspended
        parked = [(index, instance) for instance, found in sequences._suspended.items() for index in found]
        assert self.suspended.isdisjoint(instance for _, instance in sequences._free)
        taken = [(s.slot.index, s.slot.instance) for s in placed if s.slot is not None]
        everywhere = [(index, instance) for index in (0, 1) for instance in (0, 1)]
        assert sorted([*taken, *sequences._free, *parked]) == everywhere, "each slot is in one place"
        due_ns = sequences.next_ns
        assert due_ns == NEVER or due_ns > self.table.now_us * US

    def teardown(self) -> None:
        for instance in list(self.running):
            for request in self.running.pop(instance):
                self.table.done(request)
        for instance in (0, 1):
            self.resume(instance)
        for _ in range(1000):
            if any([self.table.run(0), self.table.run(1)]):
                continue
            # Sequences that never end make room for those that wait once they are idle.
            self._leave(self.table.wait(IDLE_US))
            if not len(self.table.sequences):
                break
        assert len(self.table.sequences) == 0
        self.table.wait(IDLE_US)
        assert [s for i in (0, 1) for s in self.table.sequences.row(i) if s is not None] == []
        assert self.table.sequences.next_ns == NEVER


class AnyOrderOldest(AnyOrder):
    oldest = True


class AnyOrderIterative(AnyOrder):
    """Each request is a sequence of its own: what becomes of it is nothing to others with its id."""

    iterative = True


class AnyOrderOldestIterative(AnyOrderIterative):
    oldest = True


class AnyOrderLinked(AnyOrderOldestIterative):
    """As for those with so many requests that one who leaves has to be found at once."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(sequences_of_a_model, "LONG", 0)

    def teardown(self) -> None:
        self._patch.undo()
        super().teardown()


bounded = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestDirectInAnyOrder = pytest.mark.slow(AnyOrder.TestCase)
TestDirectInAnyOrder.settings = bounded
TestOldestInAnyOrder = AnyOrderOldest.TestCase
TestOldestInAnyOrder.settings = bounded
TestIterativeInAnyOrder = pytest.mark.slow(AnyOrderIterative.TestCase)
TestIterativeInAnyOrder.settings = bounded
TestOldestIterativeInAnyOrder = pytest.mark.slow(AnyOrderOldestIterative.TestCase)
TestOldestIterativeInAnyOrder.settings = bounded
TestLinkedInAnyOrder = pytest.mark.slow(AnyOrderLinked.TestCase)
TestLinkedInAnyOrder.settings = bounded


@strategies
def test_draining_gives_all_waiting_requests_back_once(oldest: bool) -> None:
    table = Table(oldest=oldest, slots=1, max_batch_size=1)
    running = table.send("a", start=True)
    assert table.take() == [running]
    waiting = [table.send("a"), table.send("b", start=True)]
    assert table.batcher.drain() == waiting
    table.done(running)
    assert len(table.sequences) == 0
    assert table.sequences.row(0) == [None]


def test_draining_takes_back_what_was_queued_but_does_not_run() -> None:
    table = Table(oldest=True, max_queue_delay_ns=100 * US)
    requests = [table.send("a", start=True), table.send("a")]
    assert table.take() == []
    assert table.batcher.drain() == requests
    assert len(table.sequences) == 0
