"""``naiad perf advise``: shows the trials on standard error as they go, and the advice on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from naiad.cli.perf_errors import FAILED, refuse, unwritten
from naiad.perf.options import EXIT_CODE, PerfOptionError, advise_usage, parse_advise, wants_help

if TYPE_CHECKING:
    from naiad.perf.advise.run import AdviseRun
    from naiad.perf.settings import AdviseSettings

_INTERRUPTED: Final = 130
"""What shells report for SIGINT."""


def advise(argv: Sequence[str]) -> int:
    """Look for the configuration that serves a model best; returns the exit code."""
    if wants_help(argv):
        print(advise_usage(), end="")
        return 0
    try:
        return _advise(parse_advise(argv, os.environ), argv)
    except PerfOptionError as error:
        return refuse(error, "naiad perf advise")


def _advise(settings: AdviseSettings, argv: Sequence[str]) -> int:
    # Imported here: --help and wrong options do not pay for numpy.
    from naiad.cli.advise_progress import AdviseLines
    from naiad.perf.advise.run import AdviseRun
    from naiad.perf.advise.served_model import NotRestoredError
    from naiad.perf.advise.setup import UnadvisableError
    from naiad.perf.input.error import PerfInputError
    from naiad.perf.target.protocol import TargetError

    for text in settings.perf.warnings:
        print(f"warning: {text}", file=sys.stderr)
    run = AdviseRun(settings, AdviseLines(settings), ("advise", *argv))
    try:
        run.run()
    except (UnadvisableError, TargetError, PerfInputError, NotRestoredError) as error:
        for line in dict.fromkeys(filter(None, (run.failure, str(error)))):
            print(f"error: {line}", file=sys.stderr)
        return EXIT_CODE if isinstance(error, PerfInputError) else FAILED
    return _show(run, settings)


def _show(run: AdviseRun, settings: AdviseSettings) -> int:
    from naiad.perf.advise.json_file import write_advice
    from naiad.perf.advise.text import advice_text

    print(advice_text(run.advice, settings), end="", flush=True)
    file = settings.perf.output.json_file
    try:
        if file is not None:
            write_advice(run.advice, settings, file)
    except OSError as error:
        print(f"error: {unwritten(error)}", file=sys.stderr)
        return FAILED
    return _INTERRUPTED if run.advice.is_interrupted else 0
