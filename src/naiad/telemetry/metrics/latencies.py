"""The distributions of a model's latencies: summaries and histograms, which the server keeps only if it is asked to.

Requests are noted as plain numbers and counted many at a time, so that one of them costs little. Belongs to the event
loop.

Source: ``metric_model_reporter.cc`` of the reference for the names of the families, the default buckets and quantiles.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, Final

import numpy as np

from naiad.options.metric_families import FIRST_RESPONSE, HISTOGRAMS, STAGES
from naiad.telemetry.metrics.latency_counts import LatencyCounts
from naiad.telemetry.metrics.quantiles import QuantileWindow, Values

DEFAULT_BUCKETS: Final = {FIRST_RESPONSE: (100.0, 500.0, 2000.0, 5000.0)} | dict.fromkeys(
    HISTOGRAMS[1:], (100.0, 500.0, 2_000.0, 5_000.0, 20_000.0, 100_000.0, 500_000.0, 2_000_000.0, 5_000_000.0)
)
DEFAULT_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
CACHE_HIT: Final = "cache_hit"
CACHE_MISS: Final = "cache_miss"
_CHUNK: Final = 4096
"""Requests that are noted before they are counted, which takes some tenths of a millisecond."""
_NS_PER_US: Final = 1000.0
_NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class LatencySettings:
    """``--metrics-config``: which distributions are kept.

    Attributes:
        summaries, histograms: whether these are kept.
        quantiles: the shares, 0 to 1, that summaries show.
    """

    summaries: bool = False
    histograms: bool = False
    quantiles: tuple[float, ...] = DEFAULT_QUANTILES

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self.summaries or self.histograms


NO_DISTRIBUTIONS: Final = LatencySettings()


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A traced request that stands for others in its bucket: its trace id, its value, and seconds since 1970."""

    trace_id: str
    value: float
    at_s: float


class Distribution:
    """The values of one stage, in microseconds or, for a histogram of milliseconds, divided by ``scale``.

    Attributes:
        bounds: the upper bounds of the histogram; None without one.
        counts: the values in each bucket, the last without a bound.
        exemplars: of each bucket, where it has one.
        window: the last minute's quantiles; None without a summary.
        count, sum: of all values.
    """

    __slots__ = ("bounds", "count", "counts", "exemplars", "sum", "window")

    def __init__(self, bounds: Sequence[float] | None, has_summary: bool) -> None:
        self.bounds = None if bounds is None else np.asarray(bounds, np.float64)
        self.counts = np.zeros(0 if bounds is None else len(bounds) + 1, np.int64)
        self.exemplars: dict[int, Exemplar] = {}
        self.window = QuantileWindow() if has_summary else None
        self.count = 0
        self.sum = 0.0

    def add(self, values: Values, now_ns: int, weights: Values | None = None) -> None:
        """Count values, each as often as its weight says."""
        # Clocks of threads may disagree by a little.
        values = np.maximum(values, 0.0)
        self.count += len(values) if weights is None else int(weights.sum())
        self.sum += float(values.sum() if weights is None else values @ weights)
        if self.bounds is not None:
            at = np.searchsorted(self.bounds, values)
            self.counts += np.bincount(at, weights, len(self.counts)).astype(np.int64, copy=False)
        if self.window is not None:
            self.window.add(values, now_ns, weights)

    def keep(self, exemplar: Exemplar) -> None:
        """Keep the newest exemplar of a bucket."""
        if self.bounds is not None:
            self.exemplars[int(np.searchsorted(self.bounds, exemplar.value))] = exemplar


class Latencies:
    """The distributions of one model version.

    Args:
        settings: which are kept.
        buckets: the model's own buckets by the name of the histogram.
        is_decoupled: the first response of a request is noted by itself (``first``), not with the request.

    Attributes:
        counts: also counts the latencies of requests; None where nobody follows them.
    """

    __slots__ = (
        *("_alone", "_caches", "_first", "_hits", "_is_decoupled", "_misses", "_queued_ns", "_received_ns", "_runs"),
        *("first_response", "counts", "stages"),
    )

    def __init__(
        self, settings: LatencySettings, buckets: Mapping[str, Sequence[float]], is_decoupled: bool = False
    ) -> None:
        def bounds(name: str) -> Sequence[float] | None:
            return buckets.get(name, DEFAULT_BUCKETS[name]) if settings.histograms else None

        self.first_response = Distribution(bounds(FIRST_RESPONSE), False)
        self.stages = {
            stage: Distribution(bounds(name), settings.summaries)
            for stage, name in zip(STAGES, HISTOGRAMS[1:], strict=True)
        }
        self._caches = {name: Distribution(None, settings.summaries) for name in (CACHE_HIT, CACHE_MISS)}
        self.counts: LatencyCounts | None = None
        self._is_decoupled = is_decoupled
        # Of each request with a run of its own: its times by stage. Plain numbers in one list are the quickest to note.
        self._alone: list[int] = []
        # Of each other request: when it came and was queued. Arrays, as numpy reads them without a conversion.
        self._received_ns = array("q")
        self._queued_ns = array("q")
        # Of each run of several: their number, when they got their responses, when it began, its times by stage.
        self._runs: list[int] = []
        self._first: list[int] = []
        # Of each response from the cache: its times until it was found, in the queue, and of the look-up.
        self._hits: list[int] = []
        self._misses: list[int] = []

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
        """Note the requests of a run that began at ``begun_ns``, and that are responded to now.

        ``received_ns`` and ``queued_ns`` have one time for each request.
        """
        # Half the time of ``extend``, which takes them one by one.
        self._received_ns.fromlist(received_ns)
        self._queued_ns.fromlist(queued_ns)
        self._runs += (len(received_ns), now_ns, begun_ns, input_ns, infer_ns, output_ns)
        if len(self._received_ns) >= _CHUNK:
            self.settle()

    def one(self, request_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Note a request with a run of its own."""
        self._alone += (request_ns, queue_ns, input_ns, infer_ns, output_ns)
        if len(self._alone) >= _CHUNK * len(STAGES):
            self.settle()

    def first(self, ns: int) -> None:
        """Note the first response to a request of a decoupled model, or an error as the only response to any other."""
        self._first.append(ns)
        if len(self._first) >= _CHUNK:
            self.settle()

    def failed(self, ns: int) -> None:
        """Note a request that failed: its error is its first response, unless its model sends several."""
        if not self._is_decoupled:
            self.first(ns)

    def cached(self, request_ns: int, queue_ns: int, lookup_ns: int) -> None:
        """Note a response from the cache."""
        self._hits += (request_ns, queue_ns, lookup_ns)
        if len(self._hits) >= _CHUNK * 3:
            self.settle()

    def missed(self, ns: int) -> None:
        """Note a look-up and an insertion in the cache."""
        self._misses.append(ns)
        if len(self._misses) >= _CHUNK:
            self.settle()

    def exemplar(self, trace_id: str, at_s: float, request_ns: int, queue_ns: int, run: Sequence[int]) -> None:
        """Note a traced request; ``run`` has its three stages in the model, or is empty."""
        if not self._is_decoupled:
            self.first_response.keep(Exemplar(trace_id, request_ns / 1e6, at_s))
        for stage, ns in zip(STAGES, (request_ns, queue_ns, *run), strict=False):
            self.stages[stage].keep(Exemplar(trace_id, ns / _NS_PER_US, at_s))

    # Reading

    def settle(self) -> None:
        """Count what was noted."""
        now_ns = monotonic_ns()
        if self._alone:
            request, queue, *stages = _table(self._alone, len(STAGES)) / _NS_PER_US
            self._add(request, queue, now_ns)
            for stage, values in zip(STAGES[2:], stages, strict=True):
                self.stages[stage].add(values, now_ns)
            self._alone.clear()
        if self._runs:
            self._settle_runs(now_ns)
        if self._hits:
            request, queue, look_up = _table(self._hits, 3) / _NS_PER_US
            self._add(request, queue, now_ns)
            self._caches[CACHE_HIT].add(look_up, now_ns)
            self._hits.clear()
        if self._misses:
            self._caches[CACHE_MISS].add(_table(self._misses, 1)[0] / _NS_PER_US, now_ns)
            self._misses.clear()
        if self._first:
            if self.first_response.bounds is not None:
                self.first_response.add(_table(self._first, 1)[0] / _NS_PER_MS, now_ns)
            self._first.clear()

    def _settle_runs(self, now_ns: int) -> None:
        sizes, responded_ns, begun_ns, *stages = _table(self._runs, 6)
        self._add(
            (np.repeat(responded_ns, sizes) - np.frombuffer(self._received_ns, np.int64)) / _NS_PER_US,
            (np.repeat(begun_ns, sizes) - np.frombuffer(self._queued_ns, np.int64)) / _NS_PER_US,
            now_ns,
        )
        weights = sizes.astype(np.float64)
        for stage, values in zip(STAGES[2:], stages, strict=True):
            self.stages[stage].add(values / _NS_PER_US, now_ns, weights)
        # The views are gone by now: an array with a view cannot be resized.
        del self._received_ns[:]
        del self._queued_ns[:]
        self._runs.clear()

    def _add(self, request: Values, queue: Values, now_ns: int) -> None:
        """Count whole requests and their time in the queue, in microseconds."""
        self.stages["request"].add(request, now_ns)
        self.stages["queue"].add(queue, now_ns)
        if self.counts is not None:
            self.counts.add(request)
        if not self._is_decoupled and self.first_response.bounds is not None:
            self.first_response.add(request / 1000.0, now_ns)

    def watch(self) -> None:
        """Keep the quantiles of whole requests from now on, also where no summary is asked for."""
        request = self.stages["request"]
        request.window = request.window or QuantileWindow()

    def quantiles_us(self, wanted: Sequence[float]) -> list[float]:
        """The durations of whole requests at the ``wanted`` shares, 0 to 1, in microseconds; NaN without any."""
        self.settle()
        window = self.stages["request"].window
        return [math.nan] * len(wanted) if window is None else window.quantiles(wanted, monotonic_ns())

    def cache(self, name: str) -> Distribution:
        """The look-ups that found a response (``CACHE_HIT``), or the ones that did not."""
        return self._caches[name]


def _table(noted: list[int], columns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What was noted, one row for each of ``columns`` numbers that were noted together."""
    return np.ascontiguousarray(np.frombuffer(array("q", noted), np.int64).reshape(-1, columns).T)
