"""The trials of ``naiad perf advise`` as lines on standard error, while they go on."""

from __future__ import annotations

import sys

from naiad.perf.advise.run import AdviseProgress
from naiad.perf.advise.setup import ModelSetup
from naiad.perf.advise.text import trial_text
from naiad.perf.advise.trial import Trial
from naiad.perf.settings import AdviseSettings

_SHOWN_EVERY_S = 10.0
"""How often the wait for a load is shown, in seconds."""


class AdviseLines(AdviseProgress):
    """Prints a line for each stage."""

    def __init__(self, settings: AdviseSettings) -> None:
        self._settings = settings
        self._place = ""
        self._shown_s = 0.0

    def loading(self, setup: ModelSetup, number: int, rounds: int) -> None:
        """Note what comes."""
        self._place = f"[round {number} of {rounds}] {setup.name}"
        self._shown_s = 0.0

    def waiting(self, seconds: float) -> None:
        """Show that a load takes long."""
        if seconds < self._shown_s:
            self._shown_s = 0.0
        if seconds - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = seconds
            _print(f"waiting for the model to load: {seconds:.0f} s")

    def tried(self, setup: ModelSetup, trial: Trial) -> None:
        """Show what a configuration did."""
        _print(f"{self._place}: {trial_text(trial, self._settings)}")

    def refused(self, setup: ModelSetup, cause: str) -> None:
        """Show why a configuration is out."""
        _print(f"{self._place}: out of the question: {cause}")

    def restoring(self) -> None:
        """Show that the trials are over."""
        self._shown_s = 0.0
        _print("putting the configuration back; a second Ctrl-C leaves the model as it is")

    def restored(self) -> None:
        """Show that the server is as it was."""
        _print("the configuration is back")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
