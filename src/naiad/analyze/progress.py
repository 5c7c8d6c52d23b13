"""Who hears of an analysis as it goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import mean
from typing import Final

from naiad.analyze.measure.window_lengths import LEAST_REQUESTS
from naiad.analyze.measurement import Measurement
from naiad.analyze.result import ModelProfile
from naiad.analyze.search.search import MeasurementRequest
from naiad.analyze.search.work import WorkLeft
from naiad.analyze.trial import Variant
from naiad.perf.measure.stability import WINDOWS


class AnalyzeProgress:
    """Hears of every stage; this one shows nothing."""

    def reuses(self, count: int, file: str) -> None:
        """So many measurements of an earlier run can be used."""

    def began(self, profile: ModelProfile, budget_text: str) -> None:
        """A model, or several at a time, come next."""

    def measured(self, name: str, found: Measurement, request: MeasurementRequest, left_s: float | None) -> None:
        """One measurement is there; ``left_s`` is the time that the rest may take."""

    def warned(self, text: str) -> None:
        """Something is wrong that does not end the run."""


_LATELY: Final = 16
"""How many measurements say what the next ones take."""
_FEW: Final = 3
"""Of so many, the longest may be an exception."""
_CHANGE_PART: Final = 0.5
"""The part of what a measurement takes beside its windows that a change of the configuration is taken for, as long as
none without a change has been seen."""


class TimeLeft:
    """Estimates how long the rest takes: by what measurements took lately.

    Args:
        window_ms: the length of the shortest windows.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_s = window_ms / 1e3
        self._windows: deque[int] = deque(maxlen=_LATELY)
        self._lengths: deque[tuple[float, float]] = deque(maxlen=_LATELY)
        self._changed: deque[float] = deque(maxlen=_LATELY)
        self._same: deque[float] = deque(maxlen=_LATELY)
        self._before: tuple[Variant, ...] | None = None

    def note(self, found: Measurement, scale: int) -> None:
        """Learn from one measurement: what it took beside its windows, mostly a load."""
        setup = found.trial.setup
        beside_s = found.took_s
        if not found.error:
            beside_s = max(found.took_s - found.windows * found.window_ms / 1e3, 0.0)
            # Windows that differ are followed by another one, and models that complete little have longer ones.
            self._windows.append(found.windows)
            times = found.window_ms / 1e3 / (self._window_s * scale)
            self._lengths.append((times, min(_request_rates(found), default=0.0)))
        (self._same if setup == self._before else self._changed).append(beside_s)
        self._before = setup

    def estimate(self, work: WorkLeft) -> float | None:
        """Seconds; None before anything is known."""
        if not self._changed:
            return None
        changed_s = _usual(self._changed)
        same_s = _usual(self._same) if self._same else changed_s * (1 - _CHANGE_PART)
        beside_s = work.changes * changed_s + (work.count - work.changes) * same_s
        windows = mean(self._windows) if self._windows else WINDOWS
        return beside_s + windows * sum(count * self._length_s(scale) for scale, count in work.counts.items())

    def _length_s(self, scale: int) -> float:
        """How long windows will be: under some loads they are longer, as shorter ones would hold too few requests."""
        shortest_s = scale * self._window_s
        lengths = [max(times * shortest_s, LEAST_REQUESTS / rate if rate else 0.0) for times, rate in self._lengths]
        return mean(lengths) if lengths else shortest_s


def _request_rates(found: Measurement) -> list[float]:
    rates = (model.figures.get("perf_throughput", 0.0) for model in found.models)
    return [rate / load.batch_size for rate, load in zip(rates, found.trial.loads, strict=True) if rate]


def _usual(times_s: Collection[float]) -> float:
    """The mean without the longest: the first load of a framework takes many times as long as those behind it."""
    if len(times_s) < _FEW:
        return mean(times_s)
    return (sum(times_s) - max(times_s)) / (len(times_s) - 1)
