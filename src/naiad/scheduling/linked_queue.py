"""A queue that any request leaves in the same time, wherever it stands and however long the queue is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from naiad.request import InferRequest


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

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
