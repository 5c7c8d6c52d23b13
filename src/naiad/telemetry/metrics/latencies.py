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
from typing import Final, Protocol

import numpy as np

from naiad.telemetry.metrics.latency_counts import LatencyCounts
from naiad.telemetry.metrics.quantiles import QuantileWindow, Values

FIRST_RESPONSE: Final = "nv_inference_first_response_histogram_ms"
STAGES: Final = ("request", "queue", "compute_input", "compute_infer", "compute_output")
HISTOGRAMS: Final = (FIRST_RESPONSE, *(f"nv_inference_{stage}_duration_histogram_us" for stage in STAGES))
"""The histograms; ``model_metrics`` of a configuration may give each other buckets."""
DEFAULT_BUCKETS: Final = {FIRST_RESPONSE: (100.0, 500.0, 2000.0, 5000.0)} | dict.fromkeys(
    HISTOGRAMS[1:], (100.0, 500.0, 2_000.0, 5_000.0, 20_000.0, 100_000.0, 500_000.0, 2_000_000.0, 5_000_000.0)
)
DEFAULT_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
CACHE_HIT: Final = "cache_hit"
CACHE_MISS: Final = "cache_miss"
_CHUNK: Final = 2048
"""Requests that are noted before they are counted, which takes about 0.1 ms."""
_NS_PER_US: Final = 1000.0


class Timed(Protocol):
    """A request, as far as its latency needs it; times are monotonic."""

    received_ns: int
    queued_ns: int


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
            self.counts += np.bincount(at, weights, len(self.counts)).astype(np.int64)
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
        *("_caches", "_first", "_is_decoupled", "_queue_ns", "_request_ns", "_runs"),
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
        # Arrays, as numpy reads them without a conversion.
        self._request_ns = array("q")
        self._queue_ns = array("q")
        # Of each run: how many requests it counts for, and the times of its three stages.
        self._runs: list[int] = []
        self._first: list[int] = []

    # Notes of the event loop

    def batch(
        self, requests: Sequence[Timed], now_ns: int, begun_ns: int, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """Note the requests of a run that began at ``begun_ns``, and are responded to now."""
        if len(requests) == 1:
            # Written out: building lists of one costs a lone request more than all the rest.
            request = requests[0]
            self._request_ns.append(now_ns - request.received_ns)
            self._queue_ns.append(begun_ns - request.queued_ns)
        else:
            # Half the time of ``extend``, which takes them one by one.
            self._request_ns.fromlist([now_ns - r.received_ns for r in requests])
            self._queue_ns.fromlist([begun_ns - r.queued_ns for r in requests])
        self._runs += (len(requests), input_ns, infer_ns, output_ns)
        if len(self._request_ns) >= _CHUNK:
            self.settle()

    def one(self, request_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Note a request with a run of its own."""
        self._request_ns.append(request_ns)
        self._queue_ns.append(queue_ns)
        self._runs += (1, input_ns, infer_ns, output_ns)
        if len(self._request_ns) >= _CHUNK:
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
        now_ns = monotonic_ns()
        self._request_ns.append(request_ns)
        self._queue_ns.append(queue_ns)
        self._caches[CACHE_HIT].add(_us(array("q", [lookup_ns])), now_ns)

    def missed(self, ns: int) -> None:
        """Note a look-up and an insertion in the cache."""
        self._caches[CACHE_MISS].add(_us(array("q", [ns])), monotonic_ns())

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
        if self._request_ns:
            request = _us(self._request_ns)
            self.stages["request"].add(request, now_ns)
            if self.counts is not None:
                self.counts.add(request)
            self.stages["queue"].add(_us(self._queue_ns), now_ns)
            if not self._is_decoupled and self.first_response.bounds is not None:
                self.first_response.add(request / 1000.0, now_ns)
            del self._request_ns[:]
            del self._queue_ns[:]
        if self._runs:
            runs = np.frombuffer(array("q", self._runs), np.int64).reshape(-1, 4).astype(np.float64)
            weights = runs[:, 0]
            for place, stage in enumerate(STAGES[2:], 1):
                self.stages[stage].add(runs[:, place] / _NS_PER_US, now_ns, weights)
            self._runs.clear()
        if self._first:
            if self.first_response.bounds is not None:
                self.first_response.add(_us(array("q", self._first)) / 1000.0, now_ns)
            self._first.clear()

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


def _us(ns: array[int]) -> Values:
    # The view is gone when this returns: an array with a view cannot be resized.
    return np.frombuffer(ns, np.int64) / _NS_PER_US
