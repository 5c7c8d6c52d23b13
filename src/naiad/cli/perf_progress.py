"""The text report of ``naiad perf``, printed part by part while the run goes on."""

from __future__ import annotations

import sys

from naiad.perf.progress import Progress
from naiad.perf.report.text import closing_text, level_heading, level_text, pass_line, settings_text
from naiad.perf.results import LevelResult, LoadLevel, Report, Window
from naiad.perf.settings import PerfSettings

_SHOWN_EVERY_S = 5.0
"""How often the wait for a first response is shown, in seconds."""


class TextProgress(Progress):
    """Prints each part of the report as soon as it is known."""

    def __init__(self) -> None:
        self._report = Report()
        self._settings = PerfSettings()
        self._shown_s = 0.0

    def began(self, report: Report, settings: PerfSettings) -> None:
        """Print what is going to be measured, and the warnings."""
        self._report, self._settings = report, settings
        for text in settings.warnings:
            print(f"warning: {text}", file=sys.stderr)
        text = settings_text(settings, is_async=report.is_async, is_decoupled=report.is_decoupled)
        print(text, end="", flush=True)

    def waiting(self, seconds: float) -> None:
        """Say on standard error that the first response has not come."""
        if seconds < self._shown_s:
            self._shown_s = 0.0
        if seconds - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = seconds
            print(f"waiting for the first response: {seconds:.0f} s", file=sys.stderr, flush=True)

    def warmed_up(self, seconds: float) -> None:
        """Say how long the first response took, if it was long enough to be waited for."""
        if self._shown_s:
            print(f"the first response took {seconds:.1f} s; it is part of no window", file=sys.stderr, flush=True)
        self._shown_s = 0.0

    def level_began(self, level: LoadLevel) -> None:
        """Print the heading of a level."""
        print(level_heading(level), end="", flush=True)

    def window_done(self, number: int, window: Window, limit: int) -> None:
        """Print a line for the window when it was asked for."""
        if self._settings.output.verbose:
            settings = self._settings
            text = pass_line(number, window, settings.input.batch_size, settings.measure.percentile)
            print(text, end="", flush=True)

    def level_done(self, result: LevelResult) -> None:
        """Print what a level found."""
        print(level_text(result, self._report, self._settings), end="", flush=True)

    def finish(self) -> None:
        """Print what all levels found together."""
        print(closing_text(self._report, self._settings), end="", flush=True)
