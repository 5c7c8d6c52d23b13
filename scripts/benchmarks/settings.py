"""What one run of the benchmarks was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """One run: ``work`` is a scratch folder that lives as long as the run.

    Attributes:
        work: where model repositories, request files and server logs are written.
        rounds: how often every measurement is repeated; figures are medians of the rounds.
        seconds: length of one measurement under load.
        quick: everything is cut short: it shows that a case works, not how fast the server is.
        yardstick: folder of sketches to measure in the same run, or None.
        perf_analyzer: the official perf_analyzer, or None to look for it in the environment.
        reference: the reference server's executable, measured in turns with ours on Python models, or None.
    """

    work: Path
    rounds: int = 5
    seconds: int = 3
    quick: bool = False
    yardstick: Path | None = None
    perf_analyzer: Path | None = None
    reference: Path | None = None

    def sketch(self, script: str) -> Path | None:
        """The path of one sketch, or None when the run has no yardstick."""
        return None if self.yardstick is None else self.yardstick / script
