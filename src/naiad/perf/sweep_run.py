"""The runs of ``--sweep``, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.perf.input.error import PerfInputError
from naiad.perf.progress import Progress
from naiad.perf.report.sweep_table import SweepRun
from naiad.perf.run import PerfRun
from naiad.perf.settings import PerfSettings
from naiad.perf.sweep import sweep_points
from naiad.perf.target.protocol import TargetError


def run_sweep(settings: PerfSettings, progress: Progress | None = None, command: Sequence[str] = ()) -> list[SweepRun]:
    """Measure every combination. A run that fails has its reason, and the next one begins.

    Returns:
        The runs so far, when the user stopped one.

    Raises:
        KeyboardInterrupt: the user stopped a run twice.
    """
    runs: list[SweepRun] = []
    for point in sweep_points(settings):
        run = PerfRun(point, progress, command)
        try:
            run.run()
            problem = run.failure
        except (TargetError, PerfInputError) as error:
            problem = str(error)
        runs.append(SweepRun(point, run.report, problem))
        if run.report.is_interrupted:
            break
    return runs
