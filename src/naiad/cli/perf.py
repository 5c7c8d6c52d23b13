"""``naiad perf``: reads the options, measures, prints the report as it comes, and writes the files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from naiad.cli.perf_errors import FAILED, refuse, unwritten
from naiad.perf.interrupts import Interrupts
from naiad.perf.load.stop import Stop
from naiad.perf.options import EXIT_CODE, PerfOptionError, parse_perf, usage, wants_help, wants_version
from naiad.version import __version__

if TYPE_CHECKING:
    from naiad.perf.results import Report
    from naiad.perf.run import PerfRun
    from naiad.perf.settings import PerfSettings


def perf(argv: Sequence[str]) -> int:
    """Measure a model's rate and latencies, or look for its best configuration; returns the exit code."""
    if argv and argv[0] == "advise":
        from naiad.cli.perf_advise import advise

        return advise(argv[1:])
    if wants_help(argv):
        print(usage(), end="")
        return 0
    if wants_version(argv):
        print(f"naiad perf {__version__}")
        return 0
    try:
        settings = parse_perf(argv, os.environ)
        if settings.compare:
            return _compare(settings)
        return _sweep(settings, argv) if settings.sweep else _measure(settings, argv)[1]
    except PerfOptionError as error:
        return refuse(error)


def _sweep(settings: PerfSettings, argv: Sequence[str]) -> int:
    """Measure every combination of ``--sweep`` and print one table of them."""
    from naiad.perf.report.sweep_table import SweepRun, point_words, sweep_table
    from naiad.perf.sweep import sweep_points

    code, runs = 0, []
    points = sweep_points(settings)
    for number, point in enumerate(points, 1):
        print(f"\n*** Sweep {number} of {len(points)}: {point_words(point)} ***\n", flush=True)
        run, failed = _measure(point, argv)
        code = FAILED if failed else code
        runs.append(SweepRun(point, run.report, run.failure))
        if run.report.is_interrupted:
            break
    print(f"\n{sweep_table(runs)}", end="")
    return code


def _compare(settings: PerfSettings) -> int:
    """Print how runs differ, from their JSON files."""
    from naiad.perf.report.compare import compare_runs
    from naiad.perf.report.json_file import ReportFileError

    try:
        print(compare_runs(settings), end="")
    except ReportFileError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"error: {unwritten(error)}", file=sys.stderr)
        return FAILED
    return 0


def _measure(settings: PerfSettings, argv: Sequence[str]) -> tuple[PerfRun, int]:
    """Measure one run, print its report and write its files; gives the exit code as well."""
    stop = Stop()
    # An exception in the middle of an import ends in a traceback, or in a crash of a compiled module.
    with Interrupts(stop):
        # Imported here: --help and wrong options do not pay for numpy.
        from naiad.cli.perf_progress import TextProgress
        from naiad.perf.input.error import PerfInputError
        from naiad.perf.run import PerfRun
        from naiad.perf.target.protocol import TargetError
    if stop.is_wanted:
        raise KeyboardInterrupt

    progress = TextProgress(settings)
    run = PerfRun(settings, progress, argv)
    failed = FAILED
    try:
        run.run()
    except PerfOptionError as error:
        run.failure = str(error).removeprefix("Error: ")
        return run, refuse(error)
    except PerfInputError as error:
        # What requests hold is a matter of the options and their files, not of the server.
        run.failure, failed = str(error), EXIT_CODE
    except TargetError as error:
        run.failure = str(error)
    progress.finish()
    problem = _write_files(run.report, run.settings)
    for text in filter(None, (run.failure, problem)):
        print(f"error: {text}", file=sys.stderr)
    return run, failed if run.failure or problem else 0


def _write_files(report: Report, settings: PerfSettings) -> str:
    """Write the files that were asked for, whatever was measured; what went wrong, if anything did."""
    from naiad.perf.report.csv_file import write_csv
    from naiad.perf.report.html_file import write_html
    from naiad.perf.report.json_file import write_report
    from naiad.perf.report.profile_export import write_profile_export

    output = settings.output
    if not report.levels:
        return ""
    try:
        if output.csv_file is not None:
            write_csv(report, settings, output.csv_file)
        if output.profile_export_file is not None:
            write_profile_export(report, output.profile_export_file, settings.target.endpoint)
        if output.json_file is not None:
            write_report(report, settings, output.json_file)
        if output.html_file is not None:
            write_html(report, settings, output.html_file)
    except OSError as error:
        return unwritten(error)
    return ""
