"""Sequences, the slots that they have, and the backlog that waits for one. Pure: the time comes in with each call.

Source: the sequence batcher of the model configuration (``sequence_batching``). A sequence is all requests with one
correlation id, from the one with START to the one with END. It keeps its slot, and with it its instance, to its end.
A sequence with the id of another that has ended, but still has requests, waits for that one: a model that knows
sequences by their ids must not see the first request of the new one before the last of the old one, nor both at once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from naiad.clock import NEVER
from naiad.errors import InvalidArgumentError
from naiad.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from naiad.scheduling.queue.linked import LONG, LinkedQueue

_SPARE_DEADLINES: Final = 64
_ENDLESS_NS: Final = 365 * 24 * 3600 * 1_000_000_000
"""A timer takes 64 bits, and callers may send any number."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one sequence: ``index`` is the row of a batch (direct) or the number of a candidate (oldest)."""

    instance: int
    index: int


class SequenceState:
    """Base of what the owner of the sequences keeps with each of them; nothing here reads it."""

    __slots__ = ()


class Sequence:
    """One sequence.

    Attributes:
        memory: state of its owner.
        correlation_id: its id.
        slot: its slot, None while it waits for one.
        waiting: requests that have not been handed out yet, in the order of arrival.
        running: the request that was handed out, None for none. There is never more than one.
        ended: no request follows, for its last one has come or it was ended from outside.
        steps: how many requests were handed out.
        idle_since_ns: since when it has neither a waiting nor a running request.
        deadline_ns: monotonic time by which it needs a slot, ``NEVER`` for none.
        before: the ended sequence with the same id whose last requests this one waits for.
        behind: the sequence that waits for this one for that reason.
    """

    __slots__ = (
        "before",
        "behind",
        "correlation_id",
        "deadline_ns",
        "ended",
        "idle_since_ns",
        "memory",
        "running",
        "slot",
        "steps",
        "waiting",
    )

    def __init__(self, correlation_id: int | str) -> None:
        self.correlation_id = correlation_id
        self.slot: Slot | None = None
        self.waiting: deque[InferRequest] | LinkedQueue = deque()
        self.running: InferRequest | None = None
        self.ended = False
        self.steps = 0
        self.idle_since_ns = 0
        self.deadline_ns = NEVER
        self.before: Sequence | None = None
        self.behind: Sequence | None = None
        self.memory: SequenceState | None = None


class Sequences:
    """All sequences of a model.

    - **Begin** (``push``): with START, or with any request if ``starting``. START in the middle changes nothing here.
    - **Slots** (``_place``): the free slot with the lowest index, of any instance, so that sequences spread over the
      instances. A slot is free, taken, or parked while its instance is suspended.
    - **Backlog** (``_admit``, ``_follow``): without a free slot whole sequences wait in the order of their first
      request, no longer than the shortest ``timeout`` of their requests.
    - **Order** (``hand_out``, ``finish``): one request of a sequence runs at a time.
    - **End** (``_after``): once all requests have run, after END, ``end`` from outside, or ``idle_ns`` without a
      request. The slot goes to the backlog.
    - **Same id** (``before``, ``behind``): the next sequence waits until the one before it is done.
    """

    __slots__ = (
        "_by_id",
        "_by_request",
        "_chained",
        "_deadlines",
        "_ending",
        "_free",
        "_idle",
        "_idle_ns",
        "_order",
        "_rows",
        "_starting",
        "_suspended",
        "_waiting_for_slot",
    )

    def __init__(self, instances: int, slots_each: int, idle_ns: int, *, starting: bool = False) -> None:
        """``starting``: every request of an unknown sequence starts it (iterative sequences)."""
        self._rows: list[list[Sequence | None]] = [[None] * slots_each for _ in range(instances)]
        # Sorted, hence a heap already. The index comes first, so that sequences spread over the instances.
        self._free = [(index, instance) for index in range(slots_each) for instance in range(instances)]
        self._by_id: dict[int | str, Sequence] = {}
        self._by_request: dict[InferRequest, Sequence] = {}
        self._waiting_for_slot: OrderedDict[Sequence, None] = OrderedDict()
        # By id, the last sequence that has ended but still has requests; and the sequences behind such a one.
        self._ending: dict[int | str, Sequence] = {}
        self._chained: set[Sequence] = set()
        self._idle: OrderedDict[Sequence, None] = OrderedDict()
        self._idle_ns = idle_ns
        self._starting = starting
        # The free slots of suspended instances.
        self._suspended: dict[int, list[int]] = {}
        # Of sequences in the backlog; the number in the middle keeps equal deadlines in order.
        self._deadlines: list[tuple[int, int, Sequence]] = []
        self._order = count()

    # State

    def row(self, instance: int) -> list[Sequence | None]:
        """The slots of an instance: the sequence in each."""
        return self._rows[instance]

    def of(self, request: InferRequest) -> Sequence | None:
        """The sequence of a request that waits or runs."""
        return self._by_request.get(request)

    def is_live(self, correlation_id: int | str) -> bool:
        """Whether a sequence with this id accepts requests without START."""
        return correlation_id in self._by_id

    @property
    def has_live(self) -> bool:
        """Whether any sequence has not ended, or still has requests."""
        # A sequence that has ended has no id any more, but may have requests.
        return bool(self._by_id or self._by_request)

    def __iter__(self) -> Iterator[InferRequest]:
        """The waiting requests, with the requests of the backlog; not the requests that were handed out."""
        for sequence in dict.fromkeys(self._by_request.values()):
            yield from sequence.waiting

    def __len__(self) -> int:
        """How many requests wait or run."""
        return len(self._by_request)

    @property
    def has_idle(self) -> bool:
        """Whether a sequence that has not ended has no request."""
        return bool(self._idle)

    @property
    def backlog(self) -> int:
        """How many sequences wait for a slot, or for another sequence with their id."""
        return len(self._waiting_for_slot) + len(self._chained)

    @property
    def backlog_requests(self) -> int:
        """How many requests the sequences of the backlog have."""
        return sum(len(sequence.waiting) for sequence in (*self._waiting_for_slot, *self._chained))

    @property
    def next_ns(self) -> int:
        """Monotonic time at which ``settle`` has to be called again, ``NEVER`` for none."""
        while self._deadlines and not self._is_pending(self._deadlines[0]):
            heappop(self._deadlines)
        times = [self._deadlines[0][0]] if self._deadlines else []
        if self._idle:
            times.append(next(iter(self._idle)).idle_since_ns + self._idle_ns)
        return min(times, default=NEVER)

    # Requests

    def push(self, request: InferRequest, model: str) -> Sequence:
        """Add a request to its sequence, which begins with it or exists.

        Raises:
            InvalidArgumentError: the request does not begin a sequence, and no sequence has its id.
        """
        options = request.options
        sequence = self._by_id.get(options.correlation_id)
        if sequence is None:
            if not (options.flags & SEQUENCE_START or self._starting):
                raise InvalidArgumentError(
                    f"inference request for sequence {options.correlation_id} to model "
                    f"'{model}' must specify the START flag on the first request of the sequence"
                )
            sequence = self._begin(options.correlation_id)
        sequence.waiting.append(request)
        self._by_request[request] = sequence
        self._idle.pop(sequence, None)
        if options.flags & SEQUENCE_END:
            self._close(sequence)
        # A timeout bounds the wait for a slot. With a slot a request waits for its own sequence alone.
        if sequence.slot is None and (due_ns := _due_ns(request)) != NEVER:
            self._set_deadline(sequence, due_ns)
        return sequence

    def _begin(self, correlation_id: int | str) -> Sequence:
        sequence = self._by_id[correlation_id] = Sequence(correlation_id)
        before = self._ending.get(correlation_id)
        if before is None:
            self._admit(sequence)
        else:
            sequence.before, before.behind = before, sequence
            self._chained.add(sequence)
        return sequence

    def _admit(self, sequence: Sequence) -> None:
        # Where a slot is free, no sequence waits for one.
        if self._free:
            self._place(sequence)
        else:
            self._waiting_for_slot[sequence] = None

    def _close(self, sequence: Sequence) -> None:
        """End ``sequence``, whose last requests may still wait or run."""
        sequence.ended = True
        # A sequence that ended before may be closed again, while a newer one has its id.
        if self._by_id.get(sequence.correlation_id) is sequence:
            del self._by_id[sequence.correlation_id]
            self._ending[sequence.correlation_id] = sequence

    def _place(self, sequence: Sequence) -> None:
        index, instance = heappop(self._free)
        sequence.slot = Slot(instance, index)
        self._rows[instance][index] = sequence

    def hand_out(self, sequence: Sequence) -> InferRequest:
        """Start the next request of ``sequence`` and return it."""
        request = sequence.running = sequence.waiting.popleft()
        sequence.steps += 1
        return request

    def take_back(self, sequence: Sequence) -> None:
        """Queue the running request of ``sequence`` again, before all others."""
        if sequence.running is not None:
            sequence.waiting.appendleft(sequence.running)
            sequence.running = None

    def finish(self, sequence: Sequence, now_ns: int) -> Sequence | None:
        """End the running request of ``sequence``; returns the sequence that gets its slot, if any."""
        if sequence.running is not None:
            del self._by_request[sequence.running]
            sequence.running = None
        return self._after(sequence, now_ns)

    def end(self, sequence: Sequence, now_ns: int) -> tuple[list[InferRequest], Sequence | None]:
        """End a sequence from outside.

        Returns:
            Its waiting requests, which will not run, and the sequence that gets its slot, if any.
        """
        given_up = list(sequence.waiting)
        sequence.waiting.clear()
        for request in given_up:
            del self._by_request[request]
        self._close(sequence)
        return given_up, self._after(sequence, now_ns)

    def withdraw(self, request: InferRequest, now_ns: int) -> Sequence | None:
        """Remove a waiting request, and its sequence with its last request; returns the sequence that gets its slot.

        For iterative sequences: each request is a sequence of its own, and sequences with the same id run one by one.
        """
        sequence = self._by_request.pop(request)
        if len(sequence.waiting) > LONG and isinstance(sequence.waiting, deque):
            # Others will be withdrawn, too, and a deque compares all requests before each.
            sequence.waiting = LinkedQueue(sequence.waiting)
        sequence.waiting.remove(request)
        return self._after_withdrawal(sequence, now_ns)

    def _after_withdrawal(self, sequence: Sequence, now_ns: int) -> Sequence | None:
        if not sequence.waiting and sequence.running is None:
            self._close(sequence)
        return self._after(sequence, now_ns)

    def _after(self, sequence: Sequence, now_ns: int) -> Sequence | None:
        if sequence.running is not None or sequence.waiting:
            return None
        if not sequence.ended:
            sequence.idle_since_ns = now_ns
            self._idle[sequence] = None
            return None
        self._idle.pop(sequence, None)
        # The slot is freed before the next sequence is chosen, which may be the one behind.
        self._free_slot_of(sequence)
        behind = self._unchain(sequence)
        return self._follow() if behind is None else self._follow_with(behind)

    def _free_slot_of(self, sequence: Sequence) -> None:
        slot, sequence.slot = sequence.slot, None
        if slot is None:
            self._waiting_for_slot.pop(sequence, None)
            return
        self._rows[slot.instance][slot.index] = None
        # The slot of a suspended instance is free again after ``resume`` only.
        if (parked := self._suspended.get(slot.instance)) is not None:
            parked.append(slot.index)
        else:
            heappush(self._free, (slot.index, slot.instance))

    def _unchain(self, sequence: Sequence) -> Sequence | None:
        """Take ``sequence`` out of the chain of its id; returns the sequence behind it, if that may run now."""
        before, behind = sequence.before, sequence.behind
        sequence.before = sequence.behind = None
        if before is not None:
            before.behind = behind
            self._chained.discard(sequence)
        if behind is not None:
            behind.before = before
        elif self._ending.get(sequence.correlation_id) is sequence:
            if before is None:
                del self._ending[sequence.correlation_id]
            else:
                self._ending[sequence.correlation_id] = before
        return behind if before is None else None

    def _follow_with(self, behind: Sequence) -> Sequence | None:
        """Add ``behind`` to the backlog, then ``_follow``."""
        self._chained.discard(behind)
        # Behind the sequences that wait for a slot already: the free one goes to the oldest of them.
        self._waiting_for_slot[behind] = None
        return self._follow()

    def _follow(self) -> Sequence | None:
        """Give a free slot to the sequence that has waited longest; None when none waits."""
        if not self._waiting_for_slot or not self._free:
            return None
        following, _ = self._waiting_for_slot.popitem(last=False)
        self._place(following)
        return following

    # Instances that are suspended, and time

    def suspend(self, instance: int) -> None:
        """Give no sequence a slot of ``instance`` until ``resume``; sequences that have one keep it."""
        if instance not in self._suspended:
            self._suspended[instance] = [index for index, of in self._free if of == instance]
            self._free = [slot for slot in self._free if slot[1] != instance]
            heapify(self._free)

    def resume(self, instance: int) -> list[Sequence]:
        """Use the slots of ``instance`` again; returns the sequences that got one at once."""
        for index in self._suspended.pop(instance, ()):
            heappush(self._free, (index, instance))
        placed = []
        while (following := self._follow()) is not None:
            placed.append(following)
        return placed

    def settle(self, now_ns: int) -> tuple[list[InferRequest], list[Sequence]]:
        """Apply the timeouts that are over at ``now_ns``.

        Returns:
            The refused requests of sequences that waited too long for a slot, and the sequences that got the slots of
            idle ones.
        """
        refused: list[InferRequest] = []
        placed: list[Sequence] = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            # No sequence is placed here: a sequence that waits for a slot has none to free.
            entry = heappop(self._deadlines)
            if self._is_pending(entry):
                refused += self._refuse_late(entry[2], now_ns) if self._starting else self.end(entry[2], now_ns)[0]
        while self._idle:
            sequence = next(iter(self._idle))
            if sequence.idle_since_ns + self._idle_ns > now_ns:
                break
            _, following = self.end(sequence, now_ns)
            if following is not None:
                placed.append(following)
        return refused, placed

    def _refuse_late(self, sequence: Sequence, now_ns: int) -> list[InferRequest]:
        """Remove the requests past their own timeout. For iterative sequences, as ``withdraw``."""
        late: list[InferRequest] = []
        left: deque[InferRequest] = deque()
        # In one pass: thousands may have the same id.
        for request in sequence.waiting:
            (late if NEVER < _due_ns(request) <= now_ns else left).append(request)
        for request in late:
            del self._by_request[request]
        sequence.waiting, sequence.deadline_ns = left, NEVER
        if due := [due_ns for request in left if (due_ns := _due_ns(request)) != NEVER]:
            self._set_deadline(sequence, min(due))
        self._after_withdrawal(sequence, now_ns)
        return late

    def drain(self) -> list[InferRequest]:
        """End all sequences; returns their waiting requests."""
        given_up = list(self)
        for request in given_up:
            self._by_request.pop(request).waiting.clear()
        for sequence in (*self._by_id.values(), *self._by_request.values(), *self._waiting_for_slot):
            sequence.ended = True
            sequence.before = sequence.behind = None
        self._by_id.clear()
        self._waiting_for_slot.clear()
        self._chained.clear()
        # Their running requests still end, and the sequences with them.
        self._ending = {s.correlation_id: s for s in self._by_request.values()}
        for sequence in [s for row in self._rows for s in row if s is not None and s.running is None]:
            self._after(sequence, 0)
        return given_up

    def _is_pending(self, entry: tuple[int, int, Sequence]) -> bool:
        deadline_ns, _, sequence = entry
        waits = sequence in self._waiting_for_slot or sequence in self._chained
        return waits and sequence.deadline_ns == deadline_ns

    def _set_deadline(self, sequence: Sequence, deadline_ns: int) -> None:
        """Lower the deadline of a sequence to that of one of its requests."""
        if NEVER < sequence.deadline_ns <= deadline_ns:
            return
        sequence.deadline_ns = deadline_ns
        if len(self._deadlines) > 2 * self.backlog + _SPARE_DEADLINES:
            # Entries of placed sequences stay in the heap until then.
            self._deadlines = [entry for entry in self._deadlines if self._is_pending(entry)]
            heapify(self._deadlines)
        heappush(self._deadlines, (deadline_ns, next(self._order), sequence))


def _due_ns(request: InferRequest) -> int:
    """Monotonic time until which a request may wait for a slot, ``NEVER`` for no limit."""
    timeout_ns = request.options.timeout_us * 1000
    return request.queued_ns + timeout_ns if 0 < timeout_ns < _ENDLESS_NS else NEVER
