"""The batches of sequences: strategies ``direct`` and ``oldest``. Pure: the time comes in with each call.

Source: the two strategies of ``sequence_batching`` in the model configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple, Protocol

from naiad.config.spec import BatchingSpec, SequenceSpec
from naiad.request import InferRequest
from naiad.scheduling.batcher.dynamic import Batcher, DynamicBatcher, SingleBatcher
from naiad.scheduling.sequence.slots import Sequence, Sequences


class Row(NamedTuple):
    """One row of a batch. ``request`` is None for a slot without a request to run now: its row is empty."""

    slot: int
    request: InferRequest | None
    sequence: Sequence | None


class SequenceDecision(NamedTuple):
    """Run ``rows`` now if there are any; else decide again at ``wake_ns``, or at the next event when that is 0."""

    rows: list[Row]
    wake_ns: int = 0


NOTHING = SequenceDecision([])
_queued_ns = attrgetter("queued_ns")


class SequenceBatcher(Protocol):
    """Decides which requests of sequences an instance runs next."""

    sequences: Sequences

    def placed(self, sequence: Sequence) -> None:
        """Note that ``sequence`` got a slot, got a request while it has one, or ended its running request."""

    def take(self, instance: int, now_ns: int) -> SequenceDecision:
        """Decide what the idle instance ``instance`` runs now, and hand those requests out."""

    def due(self, instance: int, now_ns: int) -> tuple[int, int]:
        """What ``take`` would decide, as ``Batcher.due``: how many requests, and when to decide again."""

    def waits_for_more(self, instance: int, completed: int) -> bool:
        """Whether to wait before ``take``: the callers of the ``completed`` sequences that have just run may send their
        next requests at once."""

    def drain(self) -> list[InferRequest]:
        """End all sequences; returns the requests that have not run."""

    def discard(self, sequence: Sequence) -> None:
        """Take the running request of ``sequence`` back if no instance has it yet; the sequence will be ended."""


class DirectBatcher:
    """Every sequence has a row of its own in the batches of its instance.

    A batch reaches from the first slot to the last slot with a sequence. Slots without a request that fits get an empty
    row. A batch runs at once, unless both a delay and a utilisation are set: then when that share of the slots is
    ready, or when the oldest request has waited for the delay. ``waits_for_more`` is called before an instance counts
    as idle.
    """

    __slots__ = ("_delay_ns", "_slots", "_utilization", "sequences")

    def __init__(self, spec: SequenceSpec, sequences: Sequences) -> None:
        self.sequences = sequences
        self._slots = spec.slots
        self._utilization = spec.minimum_slot_utilization
        self._delay_ns = spec.max_queue_delay_ns if self._utilization else 0

    def placed(self, sequence: Sequence) -> None:
        return

    def discard(self, sequence: Sequence) -> None:
        return

    def due(self, instance: int, now_ns: int) -> tuple[int, int]:
        ready = _ready(self.sequences.row(instance))
        if ready and self._delay_ns and (wake_ns := self._wake_ns(ready, now_ns)):
            return 0, wake_ns
        return len(ready), 0

    def waits_for_more(self, instance: int, completed: int) -> bool:
        # An empty row costs nearly as much as a full one, and most rows would be empty. As many requests as got
        # responses are enough: then two groups of callers take turns, and the instance is never idle.
        return 0 < len(_ready(self.sequences.row(instance))) < completed

    def drain(self) -> list[InferRequest]:
        return self.sequences.drain()

    def take(self, instance: int, now_ns: int) -> SequenceDecision:
        row = self.sequences.row(instance)
        taken = [s for s in row if s is not None]
        ready = _ready(taken)
        if not ready:
            return NOTHING
        if self._delay_ns and (wake_ns := self._wake_ns(ready, now_ns)):
            return SequenceDecision([], wake_ns)
        # The shape of the oldest request: else callers in lower slots who never pause would starve the others.
        shape = (min(ready, key=_queued_ns) if len(ready) > 1 else ready[0]).options.shape_key
        last = taken[-1].slot
        count = len(row) if last is None else last.index + 1
        rows = []
        for index in range(count):
            sequence = row[index]
            request = None
            if sequence is not None and sequence.waiting and sequence.running is None:
                request = sequence.waiting[0]
                request = self.sequences.hand_out(sequence) if request.options.shape_key == shape else None
            rows.append(Row(index, request, sequence))
        return SequenceDecision(rows)

    def _wake_ns(self, ready: list[InferRequest], now_ns: int) -> int:
        """Monotonic time until which ready requests wait for others, 0 when they run now."""
        if len(ready) / self._slots >= self._utilization:
            return 0
        late_ns = min(map(_queued_ns, ready)) + self._delay_ns
        return late_ns if now_ns < late_ns else 0


def _ready(row: Iterable[Sequence | None]) -> list[InferRequest]:
    """The next request of each sequence of ``row`` that has a waiting request and no running one."""
    return [s.waiting[0] for s in row if s is not None and s.waiting and s.running is None]


class OldestBatcher:
    """The sequences of an instance are batched dynamically, each with one request at a time.

    Requests are batched in the order in which they get ready, by the rules of the dynamic batcher. A delay ends early
    when no further request can come: every sequence has its request here, and none began within the delay.
    """

    __slots__ = ("_began_ns", "_delay_ns", "_queues", "sequences")

    def __init__(self, spec: SequenceSpec, sequences: Sequences, instances: int, max_batch_size: int) -> None:
        self.sequences = sequences
        batching = BatchingSpec(spec.preferred_batch_sizes, spec.max_queue_delay_ns)
        # Iterative sequences are single requests, and others may come at any time.
        self._delay_ns = 0 if spec.iterative else spec.max_queue_delay_ns
        # By instance, when its last sequence began.
        self._began_ns = [0] * instances
        self._queues: list[Batcher] = [
            DynamicBatcher(batching, max_batch_size) if max_batch_size else SingleBatcher() for _ in range(instances)
        ]

    def placed(self, sequence: Sequence) -> None:
        if sequence.slot is not None and sequence.running is None and sequence.waiting:
            request = self.sequences.hand_out(sequence)
            self._queues[sequence.slot.instance].push(request)
            if self._delay_ns and sequence.steps == 1:
                self._began_ns[sequence.slot.instance] = request.queued_ns

    def discard(self, sequence: Sequence) -> None:
        if sequence.slot is None or sequence.running is None:
            return
        if self._queues[sequence.slot.instance].discard(sequence.running):
            self.sequences.take_back(sequence)

    def due(self, instance: int, now_ns: int) -> tuple[int, int]:
        queue = self._queues[instance]
        count, wake_ns = queue.due(now_ns)
        # As if the delay were over, since the batch cannot grow.
        if wake_ns and self._delay_ns and self._is_whole(instance, now_ns):
            return queue.due(wake_ns)
        return count, wake_ns

    def waits_for_more(self, instance: int, completed: int) -> bool:
        # The delay of the dynamic batcher covers this.
        return False

    def drain(self) -> list[InferRequest]:
        # Requests that were handed out return to their sequences first, so that ``Sequences.drain`` finds them.
        for queue in self._queues:
            for request in queue.drain():
                if (sequence := self.sequences.of(request)) is not None:
                    self.sequences.take_back(sequence)
        return self.sequences.drain()

    def take(self, instance: int, now_ns: int) -> SequenceDecision:
        queue = self._queues[instance]
        batch, wake_ns = queue.take(now_ns)
        # As in ``due``, which says why.
        if wake_ns and self._delay_ns and self._is_whole(instance, now_ns):
            batch, wake_ns = queue.take(wake_ns)
        found = [(request, self.sequences.of(request)) for request in batch]
        rows = [Row(s.slot.index, request, s) for request, s in found if s is not None and s.slot is not None]
        return SequenceDecision(rows, wake_ns)

    def _is_whole(self, instance: int, now_ns: int) -> bool:
        """Whether no further request can come: all sequences have theirs here, and none began within the delay."""
        return not self.sequences.has_idle and now_ns - self._began_ns[instance] >= self._delay_ns


def make_sequence_batcher(spec: SequenceSpec, instances: int, max_batch_size: int) -> SequenceBatcher:
    """The batcher of a model with ``sequence_batching`` and ``instances`` instances."""
    sequences = Sequences(instances, spec.slots, spec.max_idle_ns, starting=spec.iterative)
    if spec.oldest:
        return OldestBatcher(spec, sequences, instances, max_batch_size)
    return DirectBatcher(spec, sequences)
