"""The view of a run while it goes on: one block that is drawn anew on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from naiad.perf.report.figures import level_name, six_digits, stabilizing_ns
from naiad.perf.report.scales import duration_text
from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Report, Second, Window
from naiad.perf.settings import PerfSettings

_STABLE_WINDOWS: Final = 3
"""So many windows have to agree."""
_BAR: Final = 20
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_RECENT: Final = 30


@dataclass(slots=True)
class LiveState:
    """The figures of a run while it goes on.

    Attributes:
        level_number, level_count: which level is measured, from 1, of how many; a count of 0 is not known.
        waited_s: how long the first response has not come; None when it has.
        windows: the windows of the level that are done.
        window_limit: the most windows of a level.
        passed_s, window_s: of the window that is being measured; a length of 0 is not known.
        rates: requests in each of the last seconds.
        stability_percentage: by how much the last three windows may differ.
    """

    model: str = ""
    endpoint: str = ""
    level: LoadLevel | None = None
    level_number: int = 0
    level_count: int = 0
    batch_size: int = 1
    percentile: int | None = None
    stability_percentage: float = 10.0
    waited_s: float | None = None
    windows: list[Window] = field(default_factory=list)
    window_limit: int = 0
    passed_s: float = 0.0
    window_s: float = 0.0
    second: Second | None = None
    rates: list[float] = field(default_factory=list)
    errors: int = 0


def render(state: LiveState, width: int = 80) -> list[str]:
    """The block of a terminal: its lines, none longer than ``width``."""
    lines = [f"{state.model} at {state.endpoint}" if state.endpoint else state.model]
    if state.level is None:
        lines.append(_waiting(state))
    else:
        lines += [_place(state), *_now(state), f"  {stability_text(state)}", f"  {left_text(state)}"]
        if state.waited_s is not None:
            lines.insert(2, f"  {_waiting(state)}")
    kept = [line.rstrip() for line in lines if line.strip()]
    return [line if len(line) <= width else f"{line[: max(width - 1, 0)]}…" for line in kept]


def window_line(state: LiveState) -> str:
    """The last window that is done, as one line of a log."""
    if state.level is None or not state.windows:
        return ""
    window, count = state.windows[-1], len(state.windows)
    rate = six_digits(window.request_rate * state.batch_size)
    limit = f" of {state.window_limit}" if state.window_limit else ""
    latency = duration_text(stabilizing_ns(window, state.percentile) / 1e3)
    errors = f", {sum(window.errors.values())} errors" if window.errors else ""
    return (
        f"{level_name(state.level)}, window {count}{limit}: {rate} inferences/s, {_measure(state)} {latency}{errors};"
        f" {stability_text(state)}"
    )


def stability_text(state: LiveState) -> str:
    """Whether the last windows agree, and by how much they differ."""
    recent = state.windows[-_STABLE_WINDOWS:]
    if len(recent) < _STABLE_WINDOWS:
        return f"stability: {len(recent)} of {_STABLE_WINDOWS} windows"
    rate = _difference([window.request_rate for window in recent])
    latency = _difference([stabilizing_ns(window, state.percentile) for window in recent])
    allowed = state.stability_percentage
    word = "stable" if max(rate, latency) <= allowed else "not stable"
    differ = f"rate differs by {_percent(rate)}, {_measure(state)} by {_percent(latency)}"
    return f"stability: {word}: {differ}, {allowed:g}% allowed"


def left_text(state: LiveState) -> str:
    """How long the level still takes, from the next windows that could agree to the last one that is tried."""
    if not state.window_s:
        return ""
    rest = max(state.window_s - state.passed_s, 0.0)
    done = len(state.windows)
    least = rest + max(_STABLE_WINDOWS - done - 1, 0) * state.window_s
    most = rest + max(state.window_limit - done - 1, 0) * state.window_s
    levels = max(state.level_count - state.level_number, 0)
    text = f"left: {_time(least)}" + (f" to {_time(most)}" if most > least else "")
    if levels:
        least += levels * _STABLE_WINDOWS * state.window_s
        text += f" for this level, at least {_time(least)} for all"
    return text


class LiveView:
    """Shows a run: hears of its stages, and writes to a stream."""

    def __init__(self, settings: PerfSettings, stream: TextIO, *, is_terminal: bool) -> None:
        """Show on ``stream``; on a terminal as a block that is drawn anew, elsewhere as a line for each window."""
        self.state = _first_state(settings)
        self._stream = stream
        self._is_terminal = is_terminal
        self._drawn = 0
        self._said_s = 0.0

    def began(self, report: Report, settings: PerfSettings) -> None:
        """The server has described the model, and the settings are complete."""
        self.state = _first_state(settings)
        self.state.model, self.state.endpoint = report.model, report.endpoint
        self._draw()

    def waiting(self, seconds: float) -> None:
        """The first response has not come for so long."""
        self.state.waited_s = seconds
        # A log needs no line twice a second, but silence for minutes looks like a hang.
        if self._is_terminal or seconds >= self._said_s + 10:
            self._said_s = seconds
            self._draw(_waiting(self.state))

    def warmed_up(self, seconds: float) -> None:
        """The first response came after so long."""
        self.state.waited_s = None
        self._draw(f"first response after {duration_text(seconds * 1e6)}" if seconds >= 1 else "")

    def level_began(self, level: LoadLevel) -> None:
        """A level begins."""
        state = self.state
        state.level, state.level_number = level, state.level_number + 1
        state.windows, state.rates, state.second = [], [], None
        state.passed_s = state.window_s = 0.0
        self._said_s = 0.0
        self._draw()

    def second_passed(self, second: Second, passed_s: float, window_s: float) -> None:
        """A second of a window has passed."""
        state = self.state
        state.waited_s, state.second = None, second
        state.errors += second.errors
        state.passed_s, state.window_s = passed_s, window_s
        state.rates = [*state.rates[1 - _RECENT :], float(second.requests)]
        self._draw()

    def window_done(self, number: int, window: Window, limit: int) -> None:
        """A window is done."""
        state = self.state
        state.windows = [*state.windows[: number - 1], window]
        state.window_limit, state.passed_s, state.waited_s = limit, 0.0, None
        self._draw(window_line(state))

    def level_done(self, result: LevelResult) -> None:
        """A level is done: the block goes, so that the report can be written."""
        self.clear()

    def clear(self) -> None:
        """Take the block off the terminal."""
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._stream.flush()
            self._drawn = 0

    def _draw(self, line: str = "") -> None:
        if not self._is_terminal:
            if line:
                self._stream.write(f"{line}\n")
                self._stream.flush()
            return
        size = shutil.get_terminal_size()
        # One row and one column less: a terminal that scrolls or wraps would leave parts of old blocks behind.
        lines = render(self.state, size.columns - 1)[: max(size.lines - 1, 1)]
        up = f"\x1b[{self._drawn}A\x1b[J" if self._drawn else ""
        self._stream.write(up + "".join(f"{text}\n" for text in lines))
        self._stream.flush()
        self._drawn = len(lines)


def _first_state(settings: PerfSettings) -> LiveState:
    measure = settings.measure
    return LiveState(
        level_count=_level_count(settings),
        batch_size=settings.input.batch_size,
        percentile=measure.percentile,
        stability_percentage=measure.stability_percentage,
        window_limit=1 if measure.total_requests else measure.max_trials,
    )


def _level_count(settings: PerfSettings) -> int:
    """How many levels a linear search has; 0 where that is not known, 1 where there is no search."""
    load = settings.load
    if load.mode not in (LoadMode.CONCURRENCY, LoadMode.REQUEST_RATE, LoadMode.PERIODIC_CONCURRENCY):
        return 1
    if not load.levels.is_explicit:
        return 1
    if load.binary_search or load.levels.end < load.levels.start or load.levels.step <= 0:
        return 0
    return int((load.levels.end - load.levels.start) / load.levels.step + 1e-9) + 1


def _waiting(state: LiveState) -> str:
    return f"waiting for the first response: {_time(state.waited_s)}" if state.waited_s is not None else ""


def _place(state: LiveState) -> str:
    if state.level is None:
        return ""
    count = f" ({state.level_number} of {state.level_count})" if state.level_count > 1 else ""
    limit = f" of {state.window_limit}" if state.window_limit else ""
    number = len(state.windows) + 1
    if state.window_limit:
        # Behind the last window only the requests in flight are waited for.
        number = min(number, state.window_limit)
    text = f"{level_name(state.level)}{count}  window {number}{limit}"
    if not state.window_s:
        return text
    part = min(state.passed_s / state.window_s, 1.0)
    bar = ("#" * round(part * _BAR)).ljust(_BAR, "-")
    return f"{text}  [{bar}] {state.passed_s:.0f} of {state.window_s:g} s"


def _now(state: LiveState) -> list[str]:
    second = state.second
    if second is None:
        return _last_window(state)
    times = {"p50": second.p50_us, "p95": second.p95_us, "p99": second.p99_us}
    latency = (
        "  ".join(f"{name} {duration_text(us)}" for name, us in times.items()) if second.requests else "no response"
    )
    rate = f"{second.requests * state.batch_size:,} inferences/s"
    lines = [f"  {rate}  {_spark(state.rates)}", f"  latency {latency}"]
    return [*lines, f"  {state.errors:,} errors so far"] if state.errors else lines


def _last_window(state: LiveState) -> list[str]:
    """Windows of a second or less have no figures while they last: those of the last one are shown."""
    if not state.windows:
        return []
    window = state.windows[-1]
    rate = six_digits(window.request_rate * state.batch_size)
    latency = duration_text(stabilizing_ns(window, state.percentile) / 1e3)
    return [f"  last window: {rate} inferences/s, {_measure(state)} {latency}"]


def _spark(values: Sequence[float]) -> str:
    """The values as a line of small bars; its base is 0, so that noise looks like noise."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return ""
    return "".join(_SPARKS[min(int(value / highest * len(_SPARKS)), len(_SPARKS) - 1)] for value in values)


def _measure(state: LiveState) -> str:
    return "average latency" if state.percentile is None else f"p{state.percentile}"


def _difference(values: Sequence[float]) -> float:
    """By how many percent the greatest value is above the least one."""
    return (max(values) / min(values) - 1) * 100 if min(values) > 0 else float("inf")


def _percent(value: float) -> str:
    return f"{value:.0f}%" if value < 1e6 else "far too much"


def _time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
