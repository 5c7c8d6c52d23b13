"""Which queued requests run together, and when. Pure decisions: the time comes in with each call.

Source: the ``dynamic_batching`` section of the model configuration and the dynamic batching algorithm of the reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, Final, NamedTuple, Protocol

from naiad.config.spec import BatchingSpec
from naiad.request import InferRequest
from naiad.scheduling.queue.linked import LONG, LinkedQueue


class Decision(NamedTuple):
    """Run ``batch`` now if it is not empty; else decide again at ``wake_ns``, or at the next arrival when that is 0."""

    batch: list[InferRequest]
    wake_ns: int = 0


NOTHING = Decision([])

FULL: Final = "full"
"""The batch could not grow any more: it had all its rows, or the next request could not join it."""
PREFERRED: Final = "preferred_size"
"""It had a preferred size."""
DELAY: Final = "delay"
"""Its oldest request had waited for ``max_queue_delay_microseconds``."""
IDLE: Final = "idle_instance"
"""Without a delay, an idle instance takes what is there."""
REASONS: Final = (FULL, PREFERRED, DELAY, IDLE)
"""Why a batch left its queue."""


class Queue(Protocol):
    """Requests in the order of service."""

    def append(self, request: InferRequest) -> None: ...

    def popleft(self) -> InferRequest: ...

    def remove(self, request: InferRequest) -> None:
        """Remove ``request``; ValueError when it is not queued."""

    def clear(self) -> None: ...

    def __iter__(self) -> Iterator[InferRequest]: ...

    def __len__(self) -> int: ...


class Batcher(Protocol):
    """A queue that decides what an idle instance runs next."""

    @property
    def reason(self) -> str:
        """Why the last batch left, one of ``REASONS``; "" where requests run one by one."""

    def push(self, request: InferRequest) -> None:
        """Queue a request."""

    def take(self, now_ns: int) -> Decision:
        """Decide what an idle instance runs now, and remove it from the queue."""

    def due(self, now_ns: int) -> tuple[int, int]:
        """What ``take`` would decide: how many requests run now and, if none, when to decide again.

        Nothing leaves the queue.
        """

    def discard(self, request: InferRequest) -> bool:
        """Remove a request; False when it is not queued any more."""

    def drain(self) -> list[InferRequest]:
        """Empty the queue and return its requests."""

    def __len__(self) -> int: ...


class SingleBatcher:
    """The default scheduler: requests run one by one, in the order of their queue."""

    __slots__ = ("_queue",)
    reason: ClassVar[str] = ""

    def __init__(self, queue: Queue | None = None) -> None:
        self._queue: Queue = deque() if queue is None else queue

    def push(self, request: InferRequest) -> None:
        self._queue.append(request)

    def take(self, now_ns: int) -> Decision:
        return Decision([self._queue.popleft()]) if self._queue else NOTHING

    def due(self, now_ns: int) -> tuple[int, int]:
        return (1, 0) if self._queue else (0, 0)

    def discard(self, request: InferRequest) -> bool:
        self._queue = _prepared(self._queue)
        return _remove(self._queue, request)

    def drain(self) -> list[InferRequest]:
        return _empty(self._queue)

    def __len__(self) -> int:
        return len(self._queue)


class DynamicBatcher:
    """Batches requests of equal input shapes, up to ``max_batch_size`` rows.

    A batch runs at once when it has a preferred size, when it cannot grow any more (it is full, or the next request has
    other shapes), when its oldest request has waited ``max_queue_delay_ns``, or when there is no delay. ``due`` has
    these rules; ``_walk`` finds the requests that may run together.

    ``queue`` has the order of service, by default that of arrival.
    """

    __slots__ = ("_configured", "_delay_ns", "_in_order", "_largest", "_max_rows", "_preferred", "_queue", "reason")

    def __init__(self, batching: BatchingSpec, max_batch_size: int, queue: Queue | None = None) -> None:
        self._queue: Queue = deque() if queue is None else queue
        # Another queue need not have the order of arrival.
        self._in_order = queue is None
        self._configured = batching.preferred_batch_sizes
        self.limit(max_batch_size, batching.max_queue_delay_ns)
        self.reason = ""

    def limit(self, max_rows: int, max_queue_delay_ns: int) -> None:
        """Make batches of at most ``max_rows`` rows from now on, whose requests wait at most for the delay.

        Of the preferred sizes those remain that are within this bound.
        """
        self._max_rows = max_rows
        self._preferred = frozenset(size for size in self._configured if size <= max_rows)
        self._largest = max(self._preferred, default=max_rows)
        self._delay_ns = max_queue_delay_ns

    def push(self, request: InferRequest) -> None:
        self._queue.append(request)

    def take(self, now_ns: int) -> Decision:
        queue = self._queue
        if not queue:
            return NOTHING
        count, wake_ns = self.due(now_ns)
        if not count:
            return Decision([], wake_ns)
        # The usual case, without a call for each request.
        if count == len(queue):
            batch = list(queue)
            queue.clear()
            # It served the removals; a deque costs half as much.
            if isinstance(queue, LinkedQueue):
                self._queue = deque()
        else:
            batch = [queue.popleft() for _ in range(count)]
        # Once per batch: the constructor of a named tuple would be one more Python call.
        return tuple.__new__(Decision, (batch, 0))

    def due(self, now_ns: int) -> tuple[int, int]:
        if not self._queue:
            return 0, 0
        count, rows, best, full = self._walk()
        # Without a delay nothing waits for a preferred size: the largest one in the queue runs, else everything.
        if not self._delay_ns:
            self.reason = PREFERRED if best else FULL if full or rows >= self._largest else IDLE
            return best or count, 0
        late_ns = self._oldest_ns(count) + self._delay_ns
        if now_ns >= late_ns:
            # All requests that may run together, whatever the preferred sizes.
            self.reason = DELAY
            return count, 0
        if best:
            self.reason = PREFERRED
            return best, 0
        if full or rows >= self._largest:
            self.reason = FULL
            return count, 0
        return 0, late_ns

    def _oldest_ns(self, count: int) -> int:
        """When the first of the ``count`` next requests was queued."""
        # With priorities the first request need not be the oldest.
        if self._in_order:
            return next(iter(self._queue)).queued_ns
        return min(request.queued_ns for request in islice(self._queue, count))

    def _walk(self) -> tuple[int, int, int, bool]:
        """Walk the queue from its head.

        Returns:
            How many requests may run together, their rows, how many of them have the largest preferred size (0 for
            none), and whether the batch can grow no further.
        """
        max_rows, preferred, largest = self._max_rows, self._preferred, self._largest
        count = rows = best = 0
        first = next(iter(self._queue)).options
        for request in self._queue:
            options = request.options
            # Requests with the same plan share their options, which spares the comparison of keys.
            if options is not first and options.shape_key != first.shape_key:
                return count, rows, best, True
            total = rows + options.rows
            # No request can bring the batch to a preferred size any more: the requests before this one run.
            if total > largest and best == 0:
                best = count
            # The first request always runs: validation has bounded its rows.
            if total > max_rows and count:
                return count, rows, best, True
            rows = total
            count += 1
            if rows in preferred:
                best = count
        return count, rows, best, False

    def discard(self, request: InferRequest) -> bool:
        self._queue = _prepared(self._queue)
        return _remove(self._queue, request)

    def drain(self) -> list[InferRequest]:
        return _empty(self._queue)

    def __len__(self) -> int:
        return len(self._queue)


def _prepared(queue: Queue) -> Queue:
    """The queue to remove a request from: a linked one when it is long, because other requests will leave, too."""
    if isinstance(queue, deque) and len(queue) > LONG:
        return LinkedQueue(queue)
    return deque() if isinstance(queue, LinkedQueue) and not queue else queue


def _remove(queue: Queue, request: InferRequest) -> bool:
    try:
        queue.remove(request)
    except ValueError:
        return False
    return True


def _empty(queue: Queue) -> list[InferRequest]:
    requests = list(queue)
    queue.clear()
    return requests
