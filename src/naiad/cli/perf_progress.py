"""The text report of ``naiad perf``, printed part by part while the run goes on, with a live view between the parts."""

from __future__ import annotations

import sys

from naiad.perf.progress import Progress
from naiad.perf.report.live import LiveView
from naiad.perf.report.text import closing_text, level_heading, level_text, pass_line, settings_text
from naiad.perf.results import LevelResult, LoadLevel, Report, Second, Window
from naiad.perf.settings import PerfSettings

_SHOWN_EVERY_S = 10.0
"""How often the wait for a first response is shown where there is no live view, in seconds."""


class TextProgress(Progress):
    """Prints each part of the report on standard output as soon as it is known.

    The live view goes to standard error: as a block on a terminal, as lines elsewhere when it is asked for.
    """

    def __init__(self, settings: PerfSettings) -> None:
        self._report = Report()
        self._settings = settings
        self._shown_s = 0.0
        self._view: LiveView | None = None
        is_terminal = sys.stderr.isatty() and sys.stdout.isatty()
        if settings.output.live or (settings.output.live is None and is_terminal):
            self._view = LiveView(settings, sys.stderr, is_terminal=sys.stderr.isatty())

    def began(self, report: Report, settings: PerfSettings) -> None:
        """Print what is going to be measured, and the warnings."""
        self._report, self._settings = report, settings
        for text in settings.warnings:
            print(f"warning: {text}", file=sys.stderr)
        text = settings_text(settings, is_async=report.is_async, is_decoupled=report.is_decoupled)
        print(text, end="", flush=True)
        if self._view is not None:
            self._view.state.model, self._view.state.endpoint = report.model, report.endpoint

    def waiting(self, seconds: float) -> None:
        """Show that the first response has not come."""
        if self._view is not None:
            self._view.waiting(seconds)
        elif seconds - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = seconds
            print(f"waiting for the first response: {seconds:.0f} s", file=sys.stderr, flush=True)

    def warmed_up(self, seconds: float) -> None:
        """Say how long the first response took, if it was waited for."""
        if self._view is not None:
            self._view.warmed_up(seconds)
        elif self._shown_s:
            print(f"the first response took {seconds:.1f} s; it is part of no window", file=sys.stderr, flush=True)
        self._shown_s = 0.0

    def level_began(self, level: LoadLevel) -> None:
        """Print the heading of a level."""
        self._print(level_heading(level))
        self._shown_s = 0.0
        if self._view is not None:
            self._view.level_began(level)

    def second_passed(self, second: Second, passed_s: float, window_s: float) -> None:
        """Show a second."""
        if self._view is not None:
            self._view.second_passed(second, passed_s, window_s)

    def window_done(self, number: int, window: Window, limit: int) -> None:
        """Print a line for the window when it was asked for."""
        if self._settings.output.verbose:
            settings = self._settings
            self._print(pass_line(number, window, settings.input.batch_size, settings.measure.percentile))
        if self._view is not None:
            self._view.window_done(number, window, limit)

    def stopping(self, in_flight: int) -> None:
        """Say what a user who has pressed Ctrl-C waits for."""
        if self._view is not None:
            self._view.clear()
        text = f"stopping: waiting for {in_flight} requests in flight; Ctrl-C again ends at once"
        print(text, file=sys.stderr, flush=True)

    def level_done(self, result: LevelResult) -> None:
        """Print what a level found."""
        self._print(level_text(result, self._report, self._settings))

    def finish(self) -> None:
        """Print what all levels found together, if there are any."""
        if self._report.levels:
            self._print(closing_text(self._report, self._settings))
        elif self._view is not None:
            self._view.clear()

    def _print(self, text: str) -> None:
        if self._view is not None:
            self._view.clear()
        print(text, end="", flush=True)
