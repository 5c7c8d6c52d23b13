"""Queue policies: priority levels, the size of a queue, and how long a request may wait in it.

Source: ``ModelQueuePolicy`` and the priorities of ``dynamic_batching`` in the model configuration. Pure: the time comes
in with each call.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Final

from naiad.clock import NEVER
from naiad.config.spec import QueuePolicySpec, QueueSpec
from naiad.errors import QueueFullError
from naiad.request import InferRequest
from naiad.scheduling.queue.linked import LinkedQueue

_SPARE_DEADLINES: Final = 64
_ENDLESS_NS: Final = 365 * 24 * 3600 * 1_000_000_000
"""A timeout of a year or more is none. Callers may send any number, and a timer takes no more than 64 bits."""


class _Level:
    """The queue of one priority: requests in time, then delayed requests, which are served after them."""

    __slots__ = ("late", "policy", "size", "waiting")

    def __init__(self, policy: QueuePolicySpec) -> None:
        self.policy = policy
        self.waiting = LinkedQueue()
        self.late = LinkedQueue()
        # Includes urgent requests, which are in no queue of the level any more.
        self.size = 0


class _Place:
    """The queue that a request is in. ``number`` is that of its deadline, 0 for none."""

    __slots__ = ("number", "priority", "queue")

    def __init__(self, priority: int, queue: LinkedQueue, number: int) -> None:
        self.priority = priority
        self.queue = queue
        self.number = number


class PolicyQueue:
    """Requests in the order of service: level 1 before level 2, each in the order of arrival.

    - **Priority** (``QueueSpec.priority_of``): a level waits until the levels above are empty; a batch may mix levels.
    - **Size** (``max_queue_size``): a full level, late requests included, refuses the next request.
    - **Timeout** (``QueuePolicySpec.timeout_of``): a request that waited that long is refused or, with DELAY, moved
      behind all others of its level, without a time limit.
    - **Age** (``max_wait_ns``, which the reference does not have): a request that waited that long is served first.

    It has the methods of ``collections.deque`` that a batcher uses. ``settle`` has to be called with the time before
    the queue is read. Each call takes the same time however many requests wait.
    """

    __slots__ = ("_deadlines", "_levels", "_numbers", "_places", "_priorities", "_spec", "_timed", "_urgent")

    def __init__(self, spec: QueueSpec) -> None:
        self._spec = spec
        # Only levels with requests: a configuration may name any number of levels.
        self._levels: dict[int, _Level] = {}
        self._priorities: list[int] = []
        self._urgent = LinkedQueue()
        self._places: dict[InferRequest, _Place] = {}
        # By number, so that the deadline of a request that left does not keep the request alive.
        self._deadlines: list[tuple[int, int]] = []
        self._timed: dict[int, InferRequest] = {}
        # From 1 on, because 0 stands for no deadline.
        self._numbers = count(1)

    @property
    def next_deadline_ns(self) -> int:
        """Monotonic time of the next timeout, ``NEVER`` for none."""
        # A request that leaves does not search the heap: its deadline is dropped when it comes to the top.
        while self._deadlines and self._deadlines[0][1] not in self._timed:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else NEVER

    def append(self, request: InferRequest) -> None:
        """Add ``request`` at the end of its level.

        Raises:
            QueueFullError: ``max_queue_size`` requests of its level wait already.
        """
        priority = self._spec.priority_of(request.options.priority)
        policy = self._spec.policy_of(priority)
        level = self._levels.get(priority)
        # A size of 0 is no limit.
        if level is not None and 0 < policy.max_size <= level.size:
            raise QueueFullError("Exceeds maximum queue size")
        place = self._insert(request, priority, policy)
        timeout_ns = policy.timeout_of(request.options.timeout_us)
        if 0 < timeout_ns < _ENDLESS_NS:
            place.number = self._set_deadline(request, request.queued_ns + timeout_ns)

    def append_again(self, request: InferRequest) -> None:
        """Add a request that its instance has returned. It was accepted before, so no limit applies."""
        priority = self._spec.priority_of(request.options.priority)
        self._insert(request, priority, self._spec.policy_of(priority))

    def _insert(self, request: InferRequest, priority: int, policy: QueuePolicySpec) -> _Place:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(policy)
            insort(self._priorities, priority)
        level.waiting.append(request)
        level.size += 1
        place = self._places[request] = _Place(priority, level.waiting, 0)
        return place

    def settle(self, now_ns: int) -> list[InferRequest]:
        """Apply timeouts and ages at ``now_ns``; returns the refused requests, which have left the queue.

        A request past its timeout is refused or moved behind the others of its level, as the policy says. A request
        that waited for ``max_wait_ns`` is moved before all levels.
        """
        refused: list[InferRequest] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ns:
            request = self._timed.pop(heappop(deadlines)[1], None)
            if request is not None and self._is_refused(request):
                refused.append(request)
        if self._spec.max_wait_ns:
            self._hurry(now_ns - self._spec.max_wait_ns)
        return refused

    def _is_refused(self, request: InferRequest) -> bool:
        place = self._places[request]
        place.number = 0
        level = self._levels[place.priority]
        if not level.policy.delays:
            self.remove(request)
            return True
        # An urgent request keeps its place before all levels.
        if place.queue is level.waiting:
            level.waiting.remove(request)
            level.late.append(request)
            place.queue = level.late
        return False

    def _hurry(self, before_ns: int) -> None:
        """Move requests that were queued before that time to the front."""
        for level in self._levels.values():
            for queue in (level.waiting, level.late):
                # Heads alone are looked at, so that the length of a queue does not matter.
                while (first := next(iter(queue), None)) is not None and first.queued_ns <= before_ns:
                    queue.remove(first)
                    self._urgent.append(first)
                    self._places[first].queue = self._urgent

    def popleft(self) -> InferRequest:
        """Remove and return the first request; StopIteration when the queue is empty."""
        request = next(iter(self))
        self.remove(request)
        return request

    def remove(self, request: InferRequest) -> None:
        """Remove ``request``; ValueError when it is not queued."""
        place = self._places.pop(request, None)
        if place is None:
            raise ValueError("the request is not queued")
        place.queue.remove(request)
        self._timed.pop(place.number, None)
        level = self._levels[place.priority]
        level.size -= 1
        if not level.size:
            del self._levels[place.priority]
            del self._priorities[bisect_left(self._priorities, place.priority)]

    def clear(self) -> None:
        """Remove all requests."""
        self._levels.clear()
        self._priorities.clear()
        self._urgent.clear()
        self._places.clear()
        self._deadlines.clear()
        self._timed.clear()

    def __iter__(self) -> Iterator[InferRequest]:
        levels = (self._levels[priority] for priority in self._priorities)
        return chain(self._urgent, chain.from_iterable(chain(level.waiting, level.late) for level in levels))

    def __len__(self) -> int:
        return len(self._places)

    def _set_deadline(self, request: InferRequest, deadline_ns: int) -> int:
        if len(self._deadlines) > 2 * len(self._timed) + _SPARE_DEADLINES:
            # Deadlines of requests that left stay in the heap; dropped here, they never outnumber the others by much.
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._timed]
            heapify(self._deadlines)
        number = next(self._numbers)
        heappush(self._deadlines, (deadline_ns, number))
        self._timed[number] = request
        return number
