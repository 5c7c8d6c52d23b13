"""One table over the runs of ``--sweep``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from naiad.perf.results import LevelResult, LoadMode, Report
from naiad.perf.settings import PerfSettings

_LOADS: Final = {LoadMode.REQUEST_RATE: "Request Rate", LoadMode.CONCURRENCY: "Concurrency"}
_PERCENTILES: Final = (50, 95, 99)
_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        report: what was measured; None for a run that could not begin.
        problem: why it failed, or ended early; empty for one that did not.
    """

    settings: PerfSettings
    report: Report | None = None
    problem: str = ""


def sweep_table(runs: Sequence[SweepRun]) -> str:
    """The table as text: one line for each run and load level, then the best ones.

    Latencies are in microseconds. A level that did not settle is marked.
    """
    percentiles = sorted({*_PERCENTILES, *(p for run in runs if (p := run.settings.measure.percentile) is not None)})
    mode = runs[0].settings.load.mode if runs else LoadMode.CONCURRENCY
    head = ["Shape", "Batch", _LOADS.get(mode, "Load"), "Inferences/Second", "Avg latency"]
    head += [f"p{percentile} latency" for percentile in percentiles]
    rows = [head, *(row for run in runs for row in _rows(run, percentiles))]
    # The reason of a run that failed has no column.
    widths = [max(len(row[i]) for row in rows if len(row) >= len(head) or i < 2) for i in range(len(head))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([*lines, *_best(runs, percentiles)]) + "\n"


def point_words(settings: PerfSettings) -> str:
    """What a run of the sweep measures, in words."""
    shape = f"shape {shape_words(settings)}" if settings.input.shapes else "the model's shape"
    return f"{shape}, batch size {settings.input.batch_size}"


def shape_words(settings: PerfSettings) -> str:
    """The shapes of a run: ``INPUT0:3,224,224 INPUT1:10``; ``model`` where it takes those of the model."""
    words = [f"{name}:{dims}" if name else dims for name, dims in _dimensions(settings)]
    return " ".join(words) or "model"


def _dimensions(settings: PerfSettings) -> Iterator[tuple[str, str]]:
    return ((name, ",".join(map(str, shape))) for name, shape in settings.input.shapes.items())


def _rows(run: SweepRun, percentiles: Sequence[int]) -> Iterator[list[str]]:
    start = [shape_words(run.settings), str(run.settings.input.batch_size)]
    for level in run.report.levels if run.report is not None else ():
        merged = level.merged
        latencies = [merged.latency.mean, *(merged.latency.percentile(percentile) for percentile in percentiles)]
        numbers = [_number(level.level.value), _number(level.inference_rate), *(_microseconds(ns) for ns in latencies)]
        yield [*start, *numbers, *_marks(level)]
    if run.problem:
        yield [*start, f"failed: {run.problem}"]


def _marks(level: LevelResult) -> list[str]:
    errors = sum(level.merged.errors.values())
    marks = [f"unstable: {level.unstable_reason}"] if level.unstable_reason else []
    marks += [f"{errors} errors"] if errors else []
    return [", ".join(marks)] if marks else []


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names are aligned to the left and numbers to the right; what has no column follows as it is."""
    cells = [
        text.ljust(width) if i == 0 else text.rjust(width)
        for i, (text, width) in enumerate(zip(row, widths, strict=False))
    ]
    if len(row) < len(widths):
        cells[-1] = row[-1]
    return _GAP.join([*cells, *row[len(widths) :]]).rstrip()


def _best(runs: Sequence[SweepRun], percentiles: Sequence[int]) -> Iterator[str]:
    levels = [
        (run.settings, level)
        for run in runs
        if run.report is not None
        for level in run.report.levels
        if level.merged.requests
    ]
    if len(levels) < 2:
        return
    yield ""
    settings, level = max(levels, key=lambda found: found[1].inference_rate)
    yield f"Most inferences a second: {_number(level.inference_rate)} with {_words(settings, level)}"
    shown = settings.measure.percentile or percentiles[-2]
    settings, level = min(levels, key=lambda found: found[1].merged.latency.percentile(shown))
    latency = _microseconds(level.merged.latency.percentile(shown))
    yield f"Least p{shown} latency: {latency} usec with {_words(settings, level)}"


def _words(settings: PerfSettings, level: LevelResult) -> str:
    load = _LOADS.get(level.level.mode, "load").lower()
    return f"{point_words(settings)}, {load} {_number(level.level.value)}"


def _number(value: float) -> str:
    """Six significant digits."""
    return f"{value:.6g}"


def _microseconds(duration_ns: float) -> str:
    # The reference cuts the rest off.
    return str(int(duration_ns / 1000))
