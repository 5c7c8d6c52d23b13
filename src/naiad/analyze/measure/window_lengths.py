"""The length of windows: they are made longer for models that complete too little in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from naiad.analyze.measure.perf_level import model_figures, note_usage
from naiad.analyze.measure.source import LoadOptions
from naiad.analyze.measurement import Measurement
from naiad.analyze.trial import AnalysisTrial, load_of
from naiad.perf.measure.stability import WINDOWS
from naiad.perf.results import LevelResult

LEAST_REQUESTS: Final = 8
"""A window with fewer requests says too little; the next ones are made longer."""
_SPARE: Final = 1.5
"""How many times the least number the longer windows are to hold: requests do not come evenly."""
_MOST_LONGER: Final = 4.0


def longer_by(results: Sequence[LevelResult]) -> float:
    """How many times as long windows have to be to say anything; 1 where they hold enough requests."""
    # The middle window of each: one that is empty comes from a pause of the machine, and says nothing of the model.
    least = min(median(window.requests for window in result.windows) for result in results)
    return 1.0 if least >= LEAST_REQUESTS else min(_SPARE * LEAST_REQUESTS / max(least, 1), _MOST_LONGER)


class WindowLengths:
    """How many times as long as asked for windows are, by the load: models that complete little need longer ones."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], dict[float, float]] = {}

    def times(self, models: tuple[str, ...], load: float) -> float:
        """The length of the first windows. A lower load completes no more than a higher one."""
        found = self._found.get(models, {})
        return max((times for other, times in found.items() if other >= load), default=1.0)

    def lengthen(self, models: tuple[str, ...], load: float, by: float) -> None:
        """Make the windows longer from now on."""
        self._found.setdefault(models, {})[load] = self.times(models, load) * by


def measure_levels(
    trial: AnalysisTrial,
    scale: int,
    options: LoadOptions,
    lengths: WindowLengths,
    run: Callable[[int], Sequence[LevelResult]],
) -> Measurement:
    """Measure a trial, again with longer windows as long as they hold too few requests and time allows it.

    Args:
        scale: the length of the windows, in shortest windows.
        lengths: those of the models so far.
        run: measures all models at once with windows of so many milliseconds; a result for each.
    """
    names = tuple(variant.model for variant in trial.variants)
    for _ in range(options.most_adjustments + 1):
        window_ms = round(options.window_ms * scale * lengths.times(names, load_of(trial)))
        results = run(window_ms)
        times = longer_by(results)
        if times == 1.0 or options.is_recorded or WINDOWS * times * window_ms > options.time_limit_s * 1e3:
            break
        lengths.lengthen(names, load_of(trial), times)
    found = Measurement(trial, [model_figures(n, r) for n, r in zip(names, results, strict=True)])
    found.window_ms, found.windows = window_ms, max(len(result.windows) for result in results)
    for result in results:
        note_usage(found, result.merged)
    return found
