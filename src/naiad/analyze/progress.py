"""Who hears of an analysis as it goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from naiad.analyze.measurement import Measurement
from naiad.analyze.result import ModelProfile
from naiad.analyze.search.search import MeasurementRequest


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


@dataclass(slots=True)
class TimeLeft:
    """Estimates how long the rest takes: by what measurements of its kind took lately.

    Attributes:
        later: measurements that come behind those that the search counts.
        later_scale: the length of their windows.
    """

    later: int = 0
    later_scale: int = 2
    _base_s: float = 0.0
    _per_scale_s: float = 0.45
    _count: int = 0
    _began: float = field(default_factory=time.monotonic)

    def note(self, took_s: float, scale: int) -> None:
        """Learn from one measurement: what does not depend on its windows, mostly a load, is told apart."""
        self._count += 1
        rest = max(took_s - self._per_scale_s * scale, 0.0)
        weight = 1 / min(self._count, 8)
        self._base_s += weight * (rest - self._base_s)

    def set_window(self, window_ms: int) -> None:
        """Three windows, and a little before and behind them."""
        self._per_scale_s = 3 * window_ms / 1e3

    def estimate(self, request: MeasurementRequest) -> float | None:
        """Seconds; None before anything is known."""
        if not self._count:
            return None
        # Most searches' later measurements are longer than the present one.
        now = request.left * (self._base_s + self._per_scale_s * request.scale)
        return now + self.later * (self._base_s / 2 + self._per_scale_s * self.later_scale)
