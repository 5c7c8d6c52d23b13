"""Which queued requests are run together, and when. Pure: time comes in, a decision comes out, nothing is started here.

Source: the ``dynamic_batching`` section of the model configuration and the dynamic batching algorithm of the reference.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from naiad.config.spec import BatchingSpec
from naiad.request import InferRequest


class Decision(NamedTuple):
    """Run ``batch`` now when it is not empty; else look again at ``wake_ns``, or at the next arrival when that is 0."""

    batch: list[InferRequest]
    wake_ns: int = 0


NOTHING = Decision([])


class Batcher(Protocol):
    """A queue that decides what an idle instance runs next."""

    def push(self, request: InferRequest) -> None:
        """Take a request in."""

    def take(self, now_ns: int) -> Decision:
        """What an idle instance should run now. A decided batch has left the queue."""

    def discard(self, request: InferRequest) -> bool:
        """Take a queued request out; False when it is not queued (any more)."""

    def drain(self) -> list[InferRequest]:
        """Empty the queue and give back what was in it."""

    def __len__(self) -> int: ...


class SingleBatcher:
    """The default scheduler: requests run one by one in the order of arrival, each as large as it came."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[InferRequest] = deque()

    def push(self, request: InferRequest) -> None:
        self._queue.append(request)

    def take(self, now_ns: int) -> Decision:
        return Decision([self._queue.popleft()]) if self._queue else NOTHING

    def discard(self, request: InferRequest) -> bool:
        return _remove(self._queue, request)

    def drain(self) -> list[InferRequest]:
        return _empty(self._queue)

    def __len__(self) -> int:
        return len(self._queue)


class DynamicBatcher:
    """Puts requests of equal input shapes together, up to ``max_batch_size`` items.

    A batch is sent at once when it reaches a preferred size, when it cannot grow any more (full, or the next request
    has other shapes), when its oldest request has waited ``max_queue_delay_ns``, or when no delay is allowed.
    """

    __slots__ = ("_delay_ns", "_largest", "_max_rows", "_preferred", "_queue")

    def __init__(self, batching: BatchingSpec, max_batch_size: int) -> None:
        self._queue: deque[InferRequest] = deque()
        self._max_rows = max_batch_size
        self._preferred = frozenset(batching.preferred_batch_sizes)
        self._largest = max(self._preferred, default=max_batch_size)
        self._delay_ns = batching.max_queue_delay_ns

    def push(self, request: InferRequest) -> None:
        self._queue.append(request)

    def take(self, now_ns: int) -> Decision:
        queue = self._queue
        if not queue:
            return NOTHING
        count, rows, best, full = self._walk()
        oldest_ns = queue[0].queued_ns
        late = self._delay_ns > 0 and now_ns - oldest_ns >= self._delay_ns
        if best and not late:
            count = best
        elif not (full or late or rows >= self._largest or self._delay_ns == 0):
            return Decision([], oldest_ns + self._delay_ns)
        if count == len(queue):
            batch = list(queue)
            queue.clear()
        else:
            batch = [queue.popleft() for _ in range(count)]
        return Decision(batch)

    def _walk(self) -> tuple[int, int, int, bool]:
        """Walk the queue from its head.

        Returns:
            How many requests may go together, their rows, how many make up the best preferred size (0: none), and
            whether the batch can grow no further.
        """
        max_rows, preferred, largest = self._max_rows, self._preferred, self._largest
        count = rows = best = 0
        first = self._queue[0].terms
        for request in self._queue:
            terms = request.terms
            if terms is not first and terms.shape_key != first.shape_key:
                return count, rows, best, True
            total = rows + terms.rows
            if total > largest and best == 0:
                best = count
            if total > max_rows and count:
                return count, rows, best, True
            rows = total
            count += 1
            if rows in preferred:
                best = count
        return count, rows, best, False

    def discard(self, request: InferRequest) -> bool:
        return _remove(self._queue, request)

    def drain(self) -> list[InferRequest]:
        return _empty(self._queue)

    def __len__(self) -> int:
        return len(self._queue)


def _remove(queue: deque[InferRequest], request: InferRequest) -> bool:
    try:
        queue.remove(request)
    except ValueError:
        return False
    return True


def _empty(queue: deque[InferRequest]) -> list[InferRequest]:
    requests = list(queue)
    queue.clear()
    return requests
