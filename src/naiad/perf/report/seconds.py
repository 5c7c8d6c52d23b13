"""The seconds of a level, with their lengths: over all of its windows for charts, of the merged ones for statistics."""

from __future__ import annotations

from dataclasses import dataclass

from naiad.perf.results import LevelResult, Second, Window


@dataclass(frozen=True, slots=True)
class TimedSecond:
    """One second, which may be a little shorter or longer.

    Attributes:
        at_s: its start, counted from the start of the level's first window.
    """

    at_s: float
    length_s: float
    second: Second

    @property
    def request_rate(self) -> float:
        """Completed requests a second."""
        return self.second.requests / self.length_s if self.length_s > 0 else 0.0


def window_seconds(window: Window, began_ns: int) -> list[TimedSecond]:
    """The seconds of a window; each lasts until the next one begins, the last one until the window ends."""
    offset = (window.began_ns - began_ns) / 1e9
    if not window.seconds:
        return []
    starts = [second.at_s for second in window.seconds]
    ends = [*starts[1:], window.duration_s]
    return [
        TimedSecond(offset + start, end - start, second)
        for start, end, second in zip(starts, ends, window.seconds, strict=True)
        if end > start
    ]


def level_seconds(result: LevelResult) -> list[TimedSecond]:
    """The seconds of all windows of a level, in order."""
    windows = result.windows or [result.merged]
    began_ns = windows[0].began_ns
    return [second for window in windows for second in window_seconds(window, began_ns)]


def merged_rates(result: LevelResult) -> list[float]:
    """Inferences in each second of what a level reports; of its windows where no seconds were kept."""
    found = [second.request_rate for second in window_seconds(result.merged, result.merged.began_ns)]
    if not found:
        began, ended = result.merged.began_ns, result.merged.ended_ns
        kept = [window for window in result.windows if began <= window.began_ns and window.ended_ns <= ended]
        found = [window.request_rate for window in kept]
    return [rate * result.batch_size for rate in found]
