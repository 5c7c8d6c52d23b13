"""The latencies of the last seconds of a model, which are kept while somebody watches them.

Requests are noted as plain numbers and counted when the quantiles are read, once a second. Belongs to the event loop.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from time import monotonic_ns
from typing import Final

import numpy as np

from naiad.telemetry.metrics.latencies import Timed
from naiad.telemetry.metrics.quantiles import QuantileWindow

RECENT_NS: Final = 10 * 1_000_000_000
"""The quantiles are those of about the last ten seconds."""
_CHUNK: Final = 8192
"""Requests that are noted before they are counted: a reader that is late must not let them grow without bound."""


class RecentLatencies:
    """Takes the notes that ``Latencies`` takes, and keeps the durations of whole requests only."""

    __slots__ = ("_request_ns", "_window")

    def __init__(self) -> None:
        self._request_ns: list[int] = []
        self._window = QuantileWindow(RECENT_NS)

    # Notes of the event loop

    def batch(
        self, requests: Iterable[Timed], now_ns: int, begun_ns: int, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """Note the requests of a run, which are responded to now."""
        self._request_ns += [now_ns - r.received_ns for r in requests]
        if len(self._request_ns) >= _CHUNK:
            self._settle()

    def one(self, request_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Note a request with a run of its own."""
        self._request_ns.append(request_ns)
        if len(self._request_ns) >= _CHUNK:
            self._settle()

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

    # Reading

    def quantiles_us(self, wanted: Sequence[float]) -> list[float]:
        """The durations at the ``wanted`` shares, 0 to 1, in microseconds; NaN while there is no request."""
        self._settle()
        return self._window.quantiles(wanted, monotonic_ns())

    def _settle(self) -> None:
        if self._request_ns:
            durations = np.frombuffer(array("q", self._request_ns), np.int64) / 1000.0
            self._request_ns.clear()
            self._window.add(durations, monotonic_ns())
