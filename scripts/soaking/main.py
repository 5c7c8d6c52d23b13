"""The command line of ``scripts/soak``."""

from __future__ import annotations

import argparse
import fnmatch
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from benchmarks import machine, report
from benchmarks.figures import Figure
from benchmarks.report import Result

from . import minutes, outcome
from .frameworks import framework_targets
from .run import Outcome, Settings, keep_log, run
from .targets import Target, select, small_targets

DESCRIPTION = """\
Serve models of every installed backend under load, reload one of them and kill a worker each minute, and print what
failed, what grew and what is left. Nothing leaves the loopback. docs/endurance.md explains the figures."""
EPILOG = "exit code: 0 all bounds kept, 1 a bound missed, 2 an option is wrong or nothing could be measured"
LOAD = 0.6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the figures and return the exit code."""
    signal.signal(signal.SIGTERM, _leave)
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="naiad-soak-") as folder:
        work = Path(folder)
        targets, left_out = chosen(options.models, work)
        print(f"{len(targets)} models for {options.minutes:g} minutes, seed {options.seed}", file=sys.stderr)
        settings = Settings(work, options.minutes * 60, options.seed, options.load)
        try:
            found = run(settings, targets)
        finally:
            if options.log and (work / "server.log").exists():
                keep_log(settings, options.log)
    figures = list(outcome.figures(found.record, found.faults, found.samples, found.left, settings.seconds))
    each_minute = list(minutes.minutes(found.record, found.faults, found.samples, int(settings.seconds // 60)))
    table = report.table([Result("soak", "measured", tuple(figures))])
    print("\n".join((table, *lines(found, settings, each_minute), *left_out)))
    if options.json:
        options.json.write_text(json.dumps(document(options, found, figures, each_minute), indent=2) + "\n")
    return 1 if any(figure.verdict == "missed" for figure in figures) else 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="scripts/soak", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument("--minutes", type=_positive, default=120.0, help="how long the load lasts (default 120)")
    made.add_argument("--seed", type=int, default=0, help="of what is reloaded, killed and sent (default 0)")
    made.add_argument(
        "--load", type=_positive, default=LOAD, metavar="SHARE", help=f"of the measured rate (default {LOAD})"
    )
    made.add_argument("--models", metavar="NAME[,NAME]", default="*", help="only these, * stands for any text")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures and samples to FILE")
    made.add_argument("--log", type=Path, metavar="FILE", help="keep the log of the server in FILE")
    return made


def chosen(patterns: str, work: Path) -> tuple[list[Target], list[str]]:
    """The targets that fit the patterns, and why others are left out."""
    every = [*small_targets(), *framework_targets(work / "files")]
    names = [t.name for t in every if any(fnmatch.fnmatch(t.name, pattern) for pattern in patterns.split(","))]
    if not names:
        print(f"no model fits {patterns!r}; there are: {', '.join(t.name for t in every)}", file=sys.stderr)
        raise SystemExit(2)
    return select(every, names)


def lines(found: Outcome, settings: Settings, each_minute: Sequence[minutes.Minute]) -> list[str]:
    """What the table has no room for: models, and failures by cause."""
    unexplained = outcome.unexplained(found.record, found.faults)
    explained = [failure for failure in found.record.failures if failure not in unexplained]
    return [
        "",
        *outcome.target_lines(found.record, settings.seconds),
        "",
        *minutes.lines(each_minute),
        "",
        *(f"error: {line}" for line in outcome.cause_lines(unexplained)),
        *(f"of a killed worker: {line}" for line in outcome.cause_lines(explained)),
    ]


def document(
    options: argparse.Namespace, found: Outcome, figures: Sequence[Figure], each_minute: Sequence[minutes.Minute]
) -> dict[str, object]:
    """Everything for machines."""
    return {
        "machine": machine.describe(),
        "minutes": options.minutes,
        "seed": options.seed,
        "load": options.load,
        "figures": [asdict(figure) | {"verdict": figure.verdict} for figure in figures],
        "measured_rates": found.rates,
        "failures": [asdict(failure) for failure in found.record.failures],
        "each_minute": [asdict(minute) for minute in each_minute],
        "samples": [asdict(sample) for sample in found.samples],
    }


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
