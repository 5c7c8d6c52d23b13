"""The latencies of the last seconds of a model, which are kept while somebody watches them.

A request costs the noting of one number. Belongs to the event loop.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from time import monotonic_ns
from typing import Final

RECENT_NS: Final = 10 * 1_000_000_000
"""The quantiles are those of the last ten seconds, or of the last ``MAX_REQUESTS`` requests where there were more."""
MAX_REQUESTS: Final = 1000
_NS_PER_US: Final = 1000


class RecentLatencies:
    """Takes the notes that ``Latencies`` takes, and keeps the durations of whole requests only."""

    __slots__ = ("_marks", "_noted", "_request_ns")

    def __init__(self) -> None:
        self._request_ns: deque[int] = deque(maxlen=MAX_REQUESTS)
        self._noted = 0
        # When the quantiles were read, and how many requests had been noted by then.
        self._marks: deque[tuple[int, int]] = deque()

    # Notes of the event loop

    def batch(
        self,
        received_ns: list[int],
        queued_ns: list[int],
        now_ns: int,
        begun_ns: int,
        input_ns: int,
        infer_ns: int,
        output_ns: int,
    ) -> None:
        """Note the requests of a run, which are responded to now."""
        durations = [now_ns - ns for ns in received_ns]
        self._noted += len(durations)
        self._request_ns += durations

    def one(self, request_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Note a request with a run of its own."""
        self._noted += 1
        self._request_ns.append(request_ns)

    def cached(self, request_ns: int, queue_ns: int, lookup_ns: int) -> None:
        """Note a response from the cache."""
        self.one(request_ns, queue_ns, 0, 0, 0)

    def first(self, ns: int) -> None:
        """The first response of a request counts for nothing here."""

    def failed(self, ns: int) -> None:
        """A failed request counts for nothing here."""

    def missed(self, ns: int) -> None:
        """A look-up in the cache counts for nothing here."""

    def exemplar(self, trace_id: str, at_s: float, request_ns: int, queue_ns: int, run: Sequence[int]) -> None:
        """Traced requests are not kept."""

    # Requests of other processes

    def take(self) -> list[int]:
        """The durations that are kept, in nanoseconds, which are kept no longer."""
        found = list(self._request_ns)
        self._request_ns.clear()
        return found

    def add(self, durations: Sequence[int]) -> None:
        """Keep durations that were taken elsewhere."""
        self._noted += len(durations)
        self._request_ns += durations

    # Reading

    def quantiles_us(self, wanted: Sequence[float]) -> list[float]:
        """The durations at the ``wanted`` shares, 0 to 1, in microseconds; NaN while there is no request.

        Requests become old between two reads, so it is called about once a second.
        """
        self._forget()
        if not self._request_ns:
            return [math.nan] * len(wanted)
        found = sorted(self._request_ns)
        return [found[max(0, math.ceil(share * len(found)) - 1)] / _NS_PER_US for share in wanted]

    def _forget(self) -> None:
        now_ns = monotonic_ns()
        marks = self._marks
        old = 0
        while marks and marks[0][0] < now_ns - RECENT_NS:
            old = marks.popleft()[1]
        if old:
            for _ in range(len(self._request_ns) - min(len(self._request_ns), self._noted - old)):
                self._request_ns.popleft()
        marks.append((now_ns, self._noted))
