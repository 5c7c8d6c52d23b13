"""``preserve_ordering``: responses leave in the order in which their requests came, whichever instance is faster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from naiad.request import InferRequest


class OrderedRelease:
    """Delays finished responses until those of all earlier requests were sent."""

    __slots__ = ("_ready", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[InferRequest] = deque()
        self._ready: dict[InferRequest, Callable[[], None]] = {}

    def add(self, request: InferRequest) -> None:
        """Add a request: its response will leave after those of earlier requests."""
        self._waiting.append(request)

    def release(self, request: InferRequest, send: Callable[[], None]) -> None:
        """Send the response of ``request`` now, or once all earlier ones were sent."""
        self._ready[request] = send
        # The request leaves both tables before the call, since a response may release others from within.
        while self._waiting and self._waiting[0] in self._ready:
            self._ready.pop(self._waiting.popleft())()

    def when_sent(self, request: InferRequest, callback: Callable[[], None]) -> bool:
        """Call back once the response of a finished request was sent; False, uncalled, when it already was."""
        send = self._ready.get(request)
        if send is None:
            return False

        def both() -> None:
            send()
            callback()

        self._ready[request] = both
        return True

    def __len__(self) -> int:
        return len(self._waiting)
