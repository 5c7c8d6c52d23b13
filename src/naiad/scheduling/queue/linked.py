"""A queue that any request leaves in the same time, wherever it stands and however long the queue is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from naiad.request import InferRequest

LONG: Final = 256
"""From so many requests on, a queue that one of them leaves becomes a linked one."""


class LinkedQueue:
    """First in, first out, with the methods of ``collections.deque`` that a batcher uses.

    ``remove`` takes constant time. A deque looks through all that stand before the request: with 100,000 waiting ones,
    callers that leave together would hold the event loop for a minute. In turn each step costs about twice as much.
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: Iterable[InferRequest] = ()) -> None:
        self._requests: OrderedDict[InferRequest, None] = OrderedDict.fromkeys(requests)

    def append(self, request: InferRequest) -> None:
        """Add ``request`` at the end."""
        self._requests[request] = None

    def appendleft(self, request: InferRequest) -> None:
        """Add ``request`` before all others."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)

    def popleft(self) -> InferRequest:
        """Take the first one out; KeyError when there is none."""
        return self._requests.popitem(last=False)[0]

    def remove(self, request: InferRequest) -> None:
        """Take ``request`` out; ValueError when it is not there."""
        try:
            del self._requests[request]
        except KeyError:
            raise ValueError("the request is not queued") from None

    def clear(self) -> None:
        """Take all out."""
        self._requests.clear()

    def __getitem__(self, index: int) -> InferRequest:
        """The first one for 0, which is the only one that is found; IndexError for others."""
        if index or not self._requests:
            raise IndexError("a linked queue shows its first request only")
        return next(iter(self._requests))

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
