"""The measurements of ``naiad analyze`` as lines on standard error, while they go on."""

from __future__ import annotations

import sys

from naiad.analyze.measurement import Measurement
from naiad.analyze.progress import AnalyzeProgress
from naiad.analyze.result import ModelProfile
from naiad.analyze.search.search import MeasurementRequest
from naiad.analyze.settings.settings import AnalyzeSettings


class AnalyzeLines(AnalyzeProgress):
    """Prints a line for each measurement."""

    def __init__(self, settings: AnalyzeSettings) -> None:
        self._is_quiet = settings.verbosity < 0
        self._is_verbose = settings.verbosity > 0
        self._writes_figures = settings["perf_output"]
        self._figures_file = settings["perf_output_path"]

    def reuses(self, count: int, file: str) -> None:
        """Show what an earlier run has left."""
        self._print(f"{file}: {count} measurement{'s' * (count != 1)} of an earlier run can be used again")

    def began(self, profile: ModelProfile, budget_text: str) -> None:
        """Show what comes."""
        self._print(f"{profile.name}: {budget_text}")

    def measured(self, name: str, found: Measurement, request: MeasurementRequest, left_s: float | None) -> None:
        """Show a measurement."""
        left = f"  [about {duration_text(left_s)} left]" if left_s is not None and left_s >= 1 else ""
        loads = "; ".join(dict.fromkeys(load.text for load in found.trial.loads))
        if found.error:
            self._print(f"  {name}, {loads}: failed: {found.error}{left}")
        else:
            stage = f" ({request.stage})" if self._is_verbose else ""
            figures = f"{found.throughput:,.1f} inferences/s, p99 {found.p99_ms:.3g} ms"
            self._print(f"  {name}, {loads}: {figures}{stage}{left}")
        if self._writes_figures:
            self._write(f"{name} {[model.figures for model in found.models]} {found.machine}\n")

    def warned(self, text: str) -> None:
        """Show what is wrong."""
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        if not self._is_quiet:
            print(text, file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if self._figures_file is None:
            sys.stderr.write(text)
            return
        try:
            with self._figures_file.open("a") as file:
                file.write(text)
        except OSError as error:
            self._writes_figures = False
            self.warned(f"cannot write '{self._figures_file}': {error.strerror or error}")


def duration_text(seconds: float) -> str:
    """A time for people, as exact as an estimate is: ``40 s``, ``2 min 20 s``, ``1 h 15 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds, -1), 60)
    if minutes < 60:
        return f"{minutes:.0f} min {rest:.0f} s"
    return f"{minutes // 60:.0f} h {minutes % 60:.0f} min"
