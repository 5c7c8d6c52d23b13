"""The requests in flight in one worker: of its running batch, and of earlier batches that left them open."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any, Protocol

from naiad.execution.batching.batch import Batch
from naiad.request import InferRequest, RequestTrace, TracedOptions
from naiad.worker.ipc.frames import FLAG_FINAL


class ReceivedResponse(Protocol):
    """The fields of a response that tell whether it is the final response to its request."""

    @property
    def request(self) -> int: ...
    @property
    def outputs(self) -> Any: ...
    @property
    def flags(self) -> int: ...


class InFlightRequests:
    """The requests in flight, by the numbers that they have in the worker.

    One batch runs, and the next ones may wait in the worker meanwhile.

    Attributes:
        batch: the running one, None when none runs.
        number: of that batch, or of the last one.
    """

    __slots__ = (
        "_first",
        "_given_up",
        "_left",
        "_left_numbers",
        "_next",
        "_numbers",
        "_on_empty",
        "_slots",
        "batch",
        "number",
    )

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.number = 0
        # The batches behind the running one: the number of each, that of its first request, and itself.
        self._next: deque[tuple[int, int, Batch]] = deque()
        # The requests of the batch, numbered from ``_first`` on; None for each that has its final response.
        self._first = 0
        self._slots: list[InferRequest | None] = []
        # The same by request; made when it is first needed, since most batches end without.
        self._numbers: dict[InferRequest | None, int] = {}
        self._left: dict[int, tuple[InferRequest, Batch]] = {}
        # By request too: a caller with thousands of open requests may cancel all of them at once.
        self._left_numbers: dict[InferRequest, int] = {}
        self._given_up: set[int] = set()
        self._on_empty: Callable[[], object] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no batch runs, and no earlier batch left a request open."""
        return self.batch is None and not self._left

    def when_empty(self, callback: Callable[[], object]) -> None:
        """Call back once, as soon as no request is in flight: at once when none is. One may wait at a time."""
        self._on_empty = callback
        self._notify()

    def _notify(self) -> None:
        callback = self._on_empty
        if callback is not None and self.is_empty:
            self._on_empty = None
            callback()

    def begin(self, number: int, first: int, batch: Batch) -> None:
        """Register a batch that runs from now on, or behind the running one; its requests have numbers from ``first``
        on."""
        if self.batch is not None:
            self._next.append((number, first, batch))
            return
        self.batch = batch
        self.number = number
        self._first = first
        # A copy: requests that have their final response become None here.
        self._slots = list(batch.requests)

    def begin_whole(self, number: int, batch: Batch) -> None:
        """Register a batch that has one response as a whole."""
        self.batch = batch
        self.number = number

    def end(self) -> None:
        """End the batch; requests without a final response stay open."""
        batch, self.batch = self.batch, None
        if batch is not None:
            for number, request in enumerate(self._slots, self._first):
                if request is not None:
                    self._left[number] = request, batch
                    self._left_numbers[request] = number
        self._slots = []
        if self._numbers:
            self._numbers = {}
        self._begin_next()
        if self._on_empty is not None:
            self._notify()

    def _begin_next(self) -> None:
        if self._next:
            self.begin(*self._next.popleft())

    def drop_next(self, batch: Batch) -> int:
        """Forget a batch behind the running one, which has not begun, and return its number; 0 if it is not there."""
        for waiting in self._next:
            if waiting[2] is batch:
                self._next.remove(waiting)
                return waiting[0]
        return 0

    def forget_next(self) -> None:
        """Forget all batches behind the running one."""
        self._next.clear()

    def end_whole(self) -> None:
        """End a batch that had one response as a whole."""
        self.batch = None
        if self._on_empty is not None:
            self._notify()

    def is_completed_by(self, number: int, responses: Sequence[ReceivedResponse]) -> bool:
        """Whether the batch of that number is the running one, and each of its requests has one plain response, in
        their order."""
        if number != self.number or self._given_up or len(responses) != len(self._slots) or None in self._slots:
            return False
        for wanted, response in enumerate(responses, self._first):
            if response.request != wanted or response.flags != FLAG_FINAL or response.outputs is None:
                return False
        return bool(responses)

    def complete(self, count: int) -> None:
        """End the batch, which has one response to each of its requests.

        Raises:
            ValueError: it has another number of requests, or some had their final response before.
        """
        if count != len(self._slots) or None in self._slots:
            raise ValueError(f"{count} uniform responses to a batch of {len(self._slots)}, some answered before")
        if self._given_up:
            self._given_up.difference_update(range(self._first, self._first + count))
        self.batch = None
        self._slots = []
        if self._numbers:
            self._numbers = {}
        self._begin_next()
        if self._on_empty is not None:
            self._notify()

    def open_numbers(self) -> Sequence[int]:
        """The numbers of the running batch."""
        return range(self._first, self._first + len(self._slots))

    def find(self, number: int, final: bool) -> tuple[InferRequest, Batch] | None:
        """A request and its batch; ``final`` closes it. None for a request that is not open."""
        index = number - self._first
        if not 0 <= index < len(self._slots):
            return self._find_left(number, final)
        request, batch = self._slots[index], self.batch
        if final:
            self._slots[index] = None
        return None if request is None or batch is None else (request, batch)

    def open_ids(self, most: int) -> list[str]:
        """The ids of the requests in flight, those of the running batch first; up to ``most``, and "" for none."""
        running = (request for request in self._slots if request is not None)
        left = (request for request, _ in self._left.values())
        return [request.id for request in islice(chain(running, left), most)]

    def trace_of(self, number: int) -> RequestTrace | None:
        """The trace of an open request; None for one that is not traced."""
        found = self.find(number, final=False)
        options = None if found is None else found[0].options
        return options.trace if type(options) is TracedOptions else None

    def _find_left(self, number: int, final: bool) -> tuple[InferRequest, Batch] | None:
        found = self._left.get(number)
        if final and found is not None:
            del self._left[number]
            # A rescheduled request may be in flight again, under another number.
            if self._left_numbers.get(found[0]) == number:
                del self._left_numbers[found[0]]
            if self._on_empty is not None:
                self._notify()
        return found

    def give_up(self, request: InferRequest) -> int:
        """Note that the caller cancelled a request; its number, 0 when it is not open here."""
        number = self.number_of(request)
        if number:
            self._given_up.add(number)
        return number

    def number_of(self, request: InferRequest) -> int:
        """The number of a request; 0 when it is not open here."""
        number = self._left_numbers.get(request, 0) or self._number_in_next(request)
        if number or not self._slots:
            return number
        if not self._numbers:
            # All callers of a large batch may leave one after another.
            self._numbers = {one: number for number, one in enumerate(self._slots, self._first)}
        number = self._numbers.get(request, 0)
        return number if number and self._slots[number - self._first] is request else 0

    def _number_in_next(self, request: InferRequest) -> int:
        for _, first, batch in self._next:
            for number, one in enumerate(batch.requests, first):
                if one is request:
                    return number
        return 0

    @property
    def nobody_waits(self) -> bool:
        """Whether the caller of every request that is open here gave up."""
        given_up = self._given_up
        if len(given_up) < len(self._left) + len(self._slots) - self._slots.count(None):
            # Thousands of callers may leave one after another, and this is asked for each.
            return False
        running = (number for number, request in enumerate(self._slots, self._first) if request is not None)
        return all(number in given_up for number in running) and all(number in given_up for number in self._left)

    def was_given_up(self, number: int) -> bool:
        """Whether the caller of a request that is no longer open gave up; forgets that."""
        if number not in self._given_up:
            return False
        self._given_up.remove(number)
        return True

    def clear(self) -> list[tuple[InferRequest, Batch]]:
        """Forget all requests; returns the open ones with their batches."""
        self.end()
        # Again, where other batches have begun.
        while self.batch is not None:
            self.end()
        open_ones = list(self._left.values())
        self._left.clear()
        self._left_numbers.clear()
        self._given_up.clear()
        self._notify()
        return open_ones
