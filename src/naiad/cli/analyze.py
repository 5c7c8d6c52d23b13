"""``naiad analyze``: searches configurations, and writes reports about the best of them."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from naiad.analyze.errors import AnalyzeError, AnalyzeOptionError
from naiad.perf.interrupts import Interrupts
from naiad.perf.load.stop import Stop

if TYPE_CHECKING:
    from naiad.analyze.run import AnalyzeRun
    from naiad.analyze.settings.settings import AnalyzeSettings

_FAILED: Final = 1
_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_HEAD: Final = """\
Usage: naiad analyze [-m online|offline] [-v|-q] COMMAND [OPTION ...]

Finds the configurations that serve models best, by measuring them, and writes reports.

  profile   measure the models of a configuration file, and write the tables and reports
  report    write detailed reports of configurations that were measured
  analyze   the same as profile

The options are those of the reference's model-analyzer; all of them are keys of the YAML file too.

"""


def analyze(argv: Sequence[str]) -> int:
    """Run ``profile`` or ``report``; returns the exit code."""
    if not argv or {"-h", "--help"} & set(argv):
        print(_usage(argv), end="")
        return 0
    stop = Stop()
    # From here on: an exception in the middle of an import ends in a traceback, or in a crash of a compiled module.
    with Interrupts(stop, _SIGNALS):
        return _analyze(argv, stop)


def _analyze(argv: Sequence[str], stop: Stop) -> int:
    from naiad.analyze.settings.read import parse_analyze

    try:
        settings = parse_analyze(argv)
    except AnalyzeOptionError as error:
        print(f"{error}\nRun 'naiad analyze --help' for the options.", file=sys.stderr)
        return _FAILED
    for text in settings.warnings:
        print(f"warning: {text}", file=sys.stderr)
    try:
        if settings.command == "report":
            return _report(settings, stop)
        return _profile(settings, argv, stop)
    except AnalyzeError as error:
        print(f"error: {error}", file=sys.stderr)
        return _FAILED
    except OSError as error:
        print(
            f"error: cannot write '{error.filename or settings['export_path']}': {error.strerror or error}",
            file=sys.stderr,
        )
        return _FAILED


def _usage(argv: Sequence[str]) -> str:
    from naiad.analyze.settings.table import KEYS, PROFILE, REPORT

    commands = [name for name in (PROFILE, REPORT) if name in argv] or [PROFILE, REPORT]
    lines = [_HEAD]
    for command in commands:
        lines.append(f"Options of {command}:\n")
        for key in KEYS:
            if command not in key.commands or not key.has_option:
                continue
            short = f"-{key.letter}, " if key.letter else ""
            value = "" if key.kind.is_flag else f" <{key.kind.expected.partition(':')[0]}>"
            text = key.help or "Read for compatibility, without effect."
            text += " Not in the reference." if key.is_own else ""
            body = textwrap.fill(text, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
            lines.append(f"  {short}{key.flag}{value}\n{body}\n")
    return "".join(lines)


def _profile(settings: AnalyzeSettings, argv: Sequence[str], stop: Stop) -> int:
    # Imported here: --help and wrong options do not pay for numpy.
    from naiad.analyze.measure.open import open_source
    from naiad.analyze.report.text import summary_text
    from naiad.analyze.report.write import check_output_models, write_results
    from naiad.analyze.run import AnalyzeRun
    from naiad.cli.analyze_progress import AnalyzeLines

    check_output_models(settings)
    run = AnalyzeRun(settings, open_source, AnalyzeLines(settings), argv, stop)
    try:
        analysis = run.run()
        if analysis.profiles:
            print(summary_text(analysis, settings), end="", flush=True)
            for file in write_results(analysis, settings):
                print(f"wrote {file}")
    except KeyboardInterrupt:
        print(f"interrupted at once, so that reports are missing: {run.reusable}", file=sys.stderr)
        return _INTERRUPTED
    return _code(run)


def _code(run: AnalyzeRun) -> int:
    analysis = run.analysis
    if analysis.is_interrupted:
        print(f"interrupted: {run.reusable}", file=sys.stderr)
        return _INTERRUPTED
    for text in analysis.failures:
        print(f"error: {text}", file=sys.stderr)
    return _FAILED if analysis.failures or not any(profile.ranked() for profile in analysis.profiles) else 0


def _report(settings: AnalyzeSettings, stop: Stop) -> int:
    from naiad.analyze.report.detailed import write_reports

    for file in write_reports(settings):
        print(f"wrote {file}", flush=True)
        if stop.is_wanted:
            print("interrupted: the reports behind this one are missing", file=sys.stderr)
            return _INTERRUPTED
    return _INTERRUPTED if stop.is_wanted else 0
