"""Twice as many requests as a server can complete: what it completes, how soon it refuses the others, and recovers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from naiad.perf.results import RequestRecord, Window

from .. import models
from ..figures import Bound, CaseError, Figure
from ..model_load import measure_model, record_requests, refuse_errors
from ..servers import GRPC, HTTP, Server, naiad
from ..settings import Settings

Array = models.Array

SECONDS, QUICK_SECONDS = 60, 3
"""Of overload."""
UNBOUNDED_SECONDS = 10
MEASURE_SECONDS, QUICK_MEASURE_SECONDS = 10, 2
CALM_SECONDS = 5
"""Behind the overload."""
OVERLOAD, STEADY, CALM = 2.0, 0.9, 0.5
"""Rates, as parts of the measured maximum."""
PART_SECONDS = 0.25
FILL_SECONDS = 1.0
"""At the start of the overload the queue fills, which is left out of what is completed."""
ROWS = 8
RUN_MS = 20
"""A batch takes so long, which is the limit of the rate: the server itself has time to spare."""
QUEUE = 2 * ROWS
"""Requests that may wait: two batches."""
QUEUE_POLICY = f"default_queue_policy {{ max_queue_size: {QUEUE} }}"
PACE = f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{RUN_MS}" }} }}'
BOUNDED, UNBOUNDED = "bounded", "unbounded"
IN_FLIGHT = 8 * ROWS
"""While the most is measured, on the model whose queue has no bound."""
WARM_UP = 2000
REFUSALS = frozenset({"HTTP 503", "gRPC UNAVAILABLE"})
GOODPUT = Bound(">=", 0.95)
TAIL = Bound("<=", 2.0)
REFUSED_MS = Bound("<", 5.0)
RECOVERED_S = Bound("<=", 1.0)
NO_FAILURE = Bound("=", 0)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one run, each an element of the arrays.

    Attributes:
        due_s: when each was due, from the first one on.
        took_s: from then to its response.
        is_accepted: whether that was a success.
    """

    due_s: Array
    took_s: Array
    is_accepted: Array

    @classmethod
    def of(cls, records: Sequence[RequestRecord]) -> Requests:
        """The requests of a profile export."""
        due_ns = np.array([record.timestamp_ns for record in records], np.int64)
        ended_ns = np.array([record.response_timestamps_ns[-1] for record in records], np.int64)
        is_accepted = np.array([record.is_success for record in records], bool)
        return cls((due_ns - due_ns.min()) / 1e9, (ended_ns - due_ns) / 1e9, is_accepted)

    def percentile_ms(self, percent: float, chosen: Array) -> float:
        """A percentile of the times of some of the requests; 0 for none of them."""
        return float(np.percentile(self.took_s[chosen], percent)) * 1e3 if chosen.any() else 0.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Over HTTP and gRPC, on a model that lets two batches wait; then on one whose queue has no bound."""
    repository = settings.work / "overload"
    for model, policy in ((BOUNDED, QUEUE_POLICY), (UNBOUNDED, "")):
        models.add_identity(repository, model, [16], ROWS, fields=(PACE, f"dynamic_batching {{ {policy} }}"))
    seconds, unbounded_s = (QUICK_SECONDS,) * 2 if settings.quick else (SECONDS, UNBOUNDED_SECONDS)
    with naiad(repository, settings.work, service=GRPC) as server:
        for protocol, at in (("http", server.at(HTTP)), ("grpc", server)):
            yield from Overload(settings, at, protocol, seconds).figures()
        yield from Overload(settings, server.at(HTTP), "http", unbounded_s).unbounded_figures()


@dataclass(frozen=True, slots=True)
class Overload:
    """The overload of a server over one protocol, for so many seconds."""

    settings: Settings
    server: Server
    protocol: str
    seconds: int

    def figures(self) -> Iterator[Figure]:
        """What came of it with a bounded queue.

        Raises:
            CaseError: requests were lost, or some failed before the overload.
        """
        most = self._most()
        steady_ms = self._steady_p99_ms(most)
        window, requests = self._at_rates(BOUNDED, [(OVERLOAD * most, self.seconds), (CALM * most, CALM_SECONDS)])
        in_time = (requests.due_s >= FILL_SECONDS) & (requests.due_s < self.seconds)
        goodput = (in_time & requests.is_accepted).sum() / (self.seconds - FILL_SECONDS)
        p99_ms = requests.percentile_ms(99, in_time & requests.is_accepted)
        refused_p50_ms, refused_ms = (requests.percentile_ms(p, in_time & ~requests.is_accepted) for p in (50, 99))
        recovered_s = self._recovered_s(requests, TAIL.limit * steady_ms)
        name, steady = f"overload_{self.protocol}", f"{steady_ms:.1f} ms at {STEADY:.0%} of the most"
        yield Figure(f"{name}_most", most, "requests/s", note=f"{IN_FLIGHT} in flight; the overload is twice that")
        yield Figure(f"{name}_goodput", goodput / most, "of the most", GOODPUT, f"{goodput:.0f} requests/s")
        yield Figure(f"{name}_p99", p99_ms, "ms", note=f"of accepted requests; {steady}")
        yield Figure(f"{name}_tail", p99_ms / steady_ms, "times", TAIL, f"that p99 over that at {STEADY:.0%}")
        yield Figure(
            f"{name}_refused", refused_ms, "ms", REFUSED_MS, f"p99 of the refusals; p50 {refused_p50_ms:.2f} ms"
        )
        yield Figure(f"{name}_recovered", recovered_s, "s", RECOVERED_S, f"behind the overload, at {CALM:.0%}")
        yield Figure(f"{name}_failed", _failures(window), "requests", NO_FAILURE, "that were not refused")

    def unbounded_figures(self) -> Iterator[Figure]:
        """What callers wait for without a bound."""
        most = self._most()
        _, requests = self._at_rates(UNBOUNDED, [(OVERLOAD * most, self.seconds)])
        note = f"after {self.seconds} s, of a queue without max_queue_size"
        is_last = requests.due_s >= self.seconds - PART_SECONDS
        yield Figure(f"overload_{self.protocol}_unbounded", requests.percentile_ms(50, is_last), "ms", note=note)

    def _most(self) -> float:
        """The rate at which the model completes what callers send without a pause."""
        options = ("-i", self.protocol, "--concurrency-range", IN_FLIGHT, "--request-count")
        rough = measure_model(self.server, UNBOUNDED, *options, WARM_UP).request_rate
        found = measure_model(self.server, UNBOUNDED, *options, max(WARM_UP, round(self._measure_s * rough)))
        refuse_errors(found, f"{UNBOUNDED} with {IN_FLIGHT} in flight")
        return found.request_rate

    @property
    def _measure_s(self) -> int:
        return QUICK_MEASURE_SECONDS if self.settings.quick else MEASURE_SECONDS

    def _steady_p99_ms(self, most: float) -> float:
        _, requests = self._at_rates(BOUNDED, [(STEADY * most, self._measure_s)])
        return requests.percentile_ms(99, requests.is_accepted)

    def _at_rates(self, model: str, rates: Sequence[tuple[float, float]]) -> tuple[Window, Requests]:
        """Requests at each rate for so many seconds, one rate behind the other."""
        gaps = [f"{1e6 / rate:.3f}" for rate, seconds in rates for _ in range(max(1, round(rate * seconds)))]
        file = self.settings.work / "intervals"
        file.write_text("\n".join(gaps))
        options = ("-i", self.protocol, "--request-intervals", file, "--request-count", len(gaps))
        window, records = record_requests(self.server, model, self.settings.work / "overload.json", *options)
        if len(records) != len(gaps) or not window.requests:
            problems = f"{window.requests} well: {dict(window.errors)}"
            raise CaseError(f"{model}: {len(gaps)} requests were sent, {len(records)} ended, {problems}")
        return window, Requests.of(records)

    def _recovered_s(self, requests: Requests, limit_ms: float) -> float:
        """After how many seconds nothing is refused any more and nothing takes longer than it may, for a quarter."""
        for begin_s in np.arange(0.0, CALM_SECONDS, PART_SECONDS):
            due_s = requests.due_s - self.seconds
            is_part = (due_s >= begin_s) & (due_s < begin_s + PART_SECONDS)
            if requests.is_accepted[is_part].all() and requests.percentile_ms(99, is_part) <= limit_ms:
                return float(begin_s)
        return CALM_SECONDS


def _failures(window: Window) -> int:
    return sum(count for (kind, _), count in window.errors.items() if kind not in REFUSALS)
