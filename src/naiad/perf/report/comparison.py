"""Several runs side by side: the first one is what the others are compared with, level by level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from naiad.perf.report.json_file import read_report
from naiad.perf.report.seconds import merged_rates, window_seconds
from naiad.perf.report.significance import holm, least_p, mann_whitney
from naiad.perf.results import LevelResult, LoadLevel, Report

SIGNIFICANT: Final = 0.05
"""A difference counts when chance alone makes one as large in fewer than one of twenty comparisons."""

METHOD: Final = (
    "Mann-Whitney test (two-sided, exact up to 60 seconds in all) over the seconds of the reported windows: it ranks,"
    " so outliers do not decide. p is corrected by Holm for all the tests of this comparison; below 0.05 counts."
)
CAVEAT: Final = (
    "The seconds of one run have the same machine, neighbours and start in common. A difference between two single runs"
    " can come from these: repeat the runs before you believe a small one."
)


@dataclass(frozen=True, slots=True)
class FigureChange:
    """How a figure of a run differs from the first run's.

    Attributes:
        ratio: the run's figure over the first run's.
        p: after the correction; None when it cannot be tested.
        sizes: how many seconds were compared.
    """

    ratio: float
    p: float | None
    sizes: tuple[int, int]

    @property
    def is_significant(self) -> bool:
        """Whether chance alone would hardly do it."""
        return self.p is not None and self.p < SIGNIFICANT

    @property
    def percent(self) -> str:
        """``+6.4%``."""
        return f"{(self.ratio - 1) * 100:+.1f}%"


@dataclass(frozen=True, slots=True)
class LevelComparison:
    """One level of the runs that have it.

    Attributes:
        results: by the run's place.
        rates, latencies: changes of the rate and of p95 by the run's place, where the first run has the level too.
    """

    level: LoadLevel
    batch_size: int
    results: dict[int, LevelResult]
    rates: dict[int, FigureChange]
    latencies: dict[int, FigureChange]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs and their levels.

    Attributes:
        names: short names of the runs, each different.
    """

    names: tuple[str, ...]
    reports: tuple[Report, ...]
    levels: tuple[LevelComparison, ...]


def read_comparison(files: Sequence[Path]) -> Comparison:
    """Read and compare the reports of ``--json``.

    Raises:
        ReportFileError: a file is no report.
    """
    return compare(run_names(files), [read_report(file) for file in files])


def run_names(files: Sequence[Path]) -> list[str]:
    """The files' names without their ends, with as many folders before them as it takes to tell them apart."""
    for depth in range(1, max((len(file.parts) for file in files), default=1) + 1):
        names = [str(Path(*file.parts[-depth:]).with_suffix("")) for file in files]
        if len(set(names)) == len(names):
            return names
    return [f"{file.stem} ({number})" for number, file in enumerate(files, 1)]


def compare(names: Sequence[str], reports: Sequence[Report]) -> Comparison:
    """Compare the runs with the first one, at each level that both have."""
    found: dict[tuple[LoadLevel, int], dict[int, LevelResult]] = {}
    for run, report in enumerate(reports):
        for result in report.levels:
            if result.merged.requests:
                found.setdefault((result.level, result.batch_size), {})[run] = result
    keys = sorted(found, key=lambda key: (key[0].mode, key[0].value, key[1]))
    rates = _changes([found[key] for key in keys], merged_rates, lambda result: result.inference_rate)
    latencies = _changes([found[key] for key in keys], _second_p95, _p95)
    _correct([*rates, *latencies])
    levels = tuple(
        LevelComparison(key[0], key[1], found[key], rate, latency)
        for key, rate, latency in zip(keys, rates, latencies, strict=True)
    )
    return Comparison(tuple(names), tuple(reports), levels)


def _changes(
    levels: Sequence[dict[int, LevelResult]],
    sample: Callable[[LevelResult], list[float]],
    figure: Callable[[LevelResult], float],
) -> list[dict[int, FigureChange]]:
    changes: list[dict[int, FigureChange]] = []
    for results in levels:
        base = results.get(0)
        changes.append({})
        if base is None or not figure(base):
            continue
        for run, result in results.items():
            if run:
                samples = sample(base), sample(result)
                sizes = len(samples[0]), len(samples[1])
                p = mann_whitney(*samples) if all(sizes) else None
                changes[-1][run] = FigureChange(figure(result) / figure(base), p, sizes)
    return changes


def _correct(changes: Sequence[dict[int, FigureChange]]) -> None:
    """Put the corrected values in the place of the tests' own; samples that can show nothing are no tests."""
    tested = [
        (by_run, run, change.p)
        for by_run in changes
        for run, change in by_run.items()
        if change.p is not None and least_p(*change.sizes) < SIGNIFICANT
    ]
    for (by_run, run, _), p in zip(tested, holm([p for _, _, p in tested]), strict=True):
        by_run[run] = FigureChange(by_run[run].ratio, p, by_run[run].sizes)
    for by_run in changes:
        for run, change in by_run.items():
            if change.p is not None and least_p(*change.sizes) >= SIGNIFICANT:
                by_run[run] = FigureChange(change.ratio, None, change.sizes)


def _p95(result: LevelResult) -> float:
    return result.merged.latency.percentile(95)


def _second_p95(result: LevelResult) -> list[float]:
    timed = window_seconds(result.merged, result.merged.began_ns)
    return [one.second.p95_us for one in timed if one.second.requests]


def verdict(change: FigureChange | None, figure: str) -> str:
    """One change in words: ``rate +6.4% (p 0.004)``, or why nothing can be said."""
    if change is None:
        return f"{figure}: not in the first run"
    if change.p is None:
        few = f"{change.sizes[0]} and {change.sizes[1]} seconds"
        return f"{figure} {change.percent}: {few} are too few to tell it from chance"
    p = "p < 0.001" if change.p < 0.001 else f"p {change.p:.3f}"
    return f"{figure} {change.percent} ({p})" if change.is_significant else f"{figure}: no difference shown ({p})"


def differences(comparison: Comparison) -> list[str]:
    """What else differs between the runs, and may be why their figures do."""
    lines = []
    facts: dict[str, Callable[[Report], str]] = {
        "model": lambda report: f"{report.model} {report.version}".strip(),
        "protocol": lambda report: report.protocol,
        "service": lambda report: report.service_kind,
    }
    for name in sorted({name for report in comparison.reports for name in report.machine}):
        facts[name] = lambda report, name=name: report.machine.get(name, "unknown")  # type: ignore[misc]
    for name, fact in facts.items():
        values = [fact(report) for report in comparison.reports]
        if len(set(values)) > 1:
            told = ", ".join(f"{run}: {value}" for run, value in zip(comparison.names, values, strict=True))
            lines.append(f"The {name} differs: {told}")
    return lines
