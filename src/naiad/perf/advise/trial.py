"""One configuration under one load: a run of ``naiad perf`` with a fixed number of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from naiad.perf.advise.setup import ModelSetup
from naiad.perf.load.stop import Stop
from naiad.perf.load_mode import LoadMode
from naiad.perf.measure.stability import WINDOWS, latency_of
from naiad.perf.results import LevelResult, Window
from naiad.perf.run import PerfRun
from naiad.perf.settings import OutputSettings, PerfSettings, Range
from naiad.perf.target.protocol import TargetError

_FEW_ERRORS = 0.01


class StoppedError(Exception):
    """The user has ended the trials."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one configuration did in one round with so many requests in flight.

    Attributes:
        rates: inferences a second of each window.
        latencies: of each window, in ns: the average, or that of the percentile that was asked for.
        merged: all windows as one.
    """

    in_flight: int
    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    merged: Window

    @property
    def latency_ms(self) -> float:
        """The latency of all windows together."""
        return median(self.latencies) / 1e6

    @property
    def mean_batch(self) -> float:
        """Inferences of each execution, as the server counted them; 0 when it did not."""
        server = self.merged.server
        return server.inferences / server.executions if server is not None and server.executions else 0.0

    @property
    def failures(self) -> str:
        """What went wrong with more than a few requests; empty when nothing did."""
        failed = self.merged.errors.total()
        total = failed + self.merged.requests
        if failed <= _FEW_ERRORS * total:
            return ""
        (kind, cause), _ = self.merged.errors.most_common(1)[0]
        return f"{failed} of {total} requests failed with {self.in_flight} in flight, most with {kind}: {cause}"


@dataclass(slots=True)
class Tried:
    """All that is known of one configuration.

    Attributes:
        trials: those of each round, by the requests in flight.
        compared_at: with how many in flight it is compared with others; 0 while none keeps the latency limit.
        failure: why it is out of the question; empty while it is not.
    """

    setup: ModelSetup
    trials: dict[int, list[Trial]] = field(default_factory=dict)
    compared_at: int = 0
    failure: str = ""

    def rates(self, in_flight: int) -> list[tuple[float, ...]]:
        """The rates of each round's windows."""
        return [trial.rates for trial in self.trials[in_flight]]

    def latencies(self, in_flight: int) -> list[tuple[float, ...]]:
        """The latencies of each round's windows, in ns."""
        return [trial.latencies for trial in self.trials[in_flight]]

    def rate(self, in_flight: int) -> float:
        """Inferences a second: the round in the middle, by its window in the middle."""
        return median(median(rates) for rates in self.rates(in_flight))

    def latency_ms(self, in_flight: int) -> float:
        """The latency, likewise."""
        return median(median(found) for found in self.latencies(in_flight)) / 1e6

    def mean_batch(self, in_flight: int) -> float:
        """Inferences of each execution, likewise; 0 when the server does not say."""
        return median(trial.mean_batch for trial in self.trials[in_flight])

    @property
    def is_client_bound(self) -> bool:
        """Whether the client was the bottleneck in most rounds of the comparison."""
        bound = [trial.merged.client.is_bottleneck for trial in self.trials.get(self.compared_at, ())]
        return 2 * sum(bound) > len(bound)


def run_trial(settings: PerfSettings, in_flight: int, stop: Stop) -> Trial:
    """Measure what the server has now.

    Raises:
        StoppedError: the user has ended it.
        TargetError: the server cannot be measured, or nothing but errors came.
        PerfInputError, PerfOptionError: the options do not fit the model.
    """
    run = PerfRun(_settings(settings, in_flight), stop=stop)
    try:
        report = run.run()
    except TargetError:
        if stop.is_wanted:
            raise StoppedError from None
        raise
    if stop.is_wanted:
        raise StoppedError
    if run.failure or not report.levels:
        raise TargetError(run.failure or "nothing was measured")
    (level,) = report.levels
    return _trial(level, in_flight, settings.measure.percentile)


def _settings(settings: PerfSettings, in_flight: int) -> PerfSettings:
    levels = Range(in_flight, in_flight, 1)
    return replace(
        settings,
        load=replace(settings.load, mode=LoadMode.CONCURRENCY, levels=levels, latency_limit_ms=0, binary_search=False),
        measure=replace(
            settings.measure, mode="time_windows", total_requests=0, max_trials=WINDOWS, collect_metrics=False
        ),
        output=OutputSettings(),
        given=frozenset(),
    )


def _trial(level: LevelResult, in_flight: int, percentile: int | None) -> Trial:
    windows: Sequence[Window] = level.windows
    empty = sum(not window.requests for window in windows)
    if empty:
        raise TargetError(
            f"{empty} of {len(windows)} windows completed no request with {in_flight} in flight: use longer "
            "windows (-p)"
        )
    return Trial(
        in_flight,
        tuple(window.request_rate * level.batch_size for window in windows),
        tuple(latency_of(window, percentile) for window in windows),
        level.merged,
    )
