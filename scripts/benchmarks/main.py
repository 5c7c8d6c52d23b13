"""The command line of ``scripts/bench``."""

from __future__ import annotations

import argparse
import fnmatch
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from . import load, machine, report
from .cases import CASES, ON_REQUEST, Case
from .figures import CaseError, CaseSkippedError, Figure
from .report import Result
from .settings import Settings

DESCRIPTION = """\
Measure what the project promises about speed and memory, and print every figure beside its bound. Nothing leaves the
loopback. The figures are explained in docs/benchmarks.md."""
EPILOG = "exit code: 0 all bounds kept, 1 a bound missed (not with --quick), 2 a case failed or an option is wrong"
QUICK_SECONDS = 1
REFERENCE = "NAIAD_REFERENCE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cases, print the table and return the exit code."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="naiad-bench-") as work:
        settings = _settings(options, Path(work))
        _introduce(settings)
        results = [run(name, CASES[name], settings) for name in options.only or usual_cases()]
    print(report.table(results))
    if options.json:
        report.write_json(options.json, settings, results)
    return exit_code(settings, results)


def usual_cases() -> list[str]:
    """What runs when nothing is named."""
    return [name for name in CASES if name not in ON_REQUEST]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="scripts/bench", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument(
        "--only",
        type=case_names,
        metavar="NAME[,NAME]",
        help=f"run only these, * stands for any text: {', '.join(CASES)} (only when named: {', '.join(ON_REQUEST)})",
    )
    made.add_argument("--quick", action="store_true", help="one short round: shows that everything works, no more")
    made.add_argument("--rounds", type=_positive, help="repetitions, of which medians are printed (default 5)")
    made.add_argument("--seconds", type=_positive, default=3, help="length of one measurement (default 3)")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures and the machine to FILE")
    made.add_argument(
        "--yardstick",
        type=_folder,
        metavar="DIR",
        help="also measure the sketches in DIR, in turns, and print the ratios",
    )
    made.add_argument(
        "--perf-analyzer",
        type=Path,
        metavar="PATH",
        help="the official perf_analyzer (default: $PERF_ANALYZER, or the one on PATH)",
    )
    made.add_argument(
        "--reference",
        type=_executable,
        metavar="PATH",
        default=os.environ.get(REFERENCE),
        help=f"the reference server's executable, for the cases of Python models and peers_* (default: ${REFERENCE})",
    )
    return made


def run(name: str, case: Case, settings: Settings) -> Result:
    """One case; a figure that was already taken is kept when a later one fails."""
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    began = time.monotonic()
    result = _run(name, case, settings)
    print(f"{result.outcome} in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return result


def _run(name: str, case: Case, settings: Settings) -> Result:
    figures: list[Figure] = []
    try:
        figures.extend(case(settings))
    except CaseSkippedError as reason:
        return Result(name, "skipped", tuple(figures), str(reason))
    except CaseError as error:
        return Result(name, "failed", tuple(figures), str(error))
    except Exception as error:  # one broken case must not take the other cases' figures along
        traceback.print_exc()
        return Result(name, "failed", tuple(figures), repr(error))
    return Result(name, "measured", tuple(figures))


def exit_code(settings: Settings, results: Sequence[Result]) -> int:
    """0, 1 or 2, as the help text says."""
    if any(result.outcome == "failed" for result in results):
        return 2
    return 1 if report.missed(results) and not settings.quick else 0


def _settings(options: argparse.Namespace, work: Path) -> Settings:
    given = {name: getattr(options, name) for name in ("yardstick", "perf_analyzer", "reference")}
    if options.quick:
        return Settings(work, options.rounds or 1, QUICK_SECONDS, True, **given)
    return Settings(work, options.rounds or 5, options.seconds, False, **given)


def _introduce(settings: Settings) -> None:
    about = machine.describe()
    print(f"{about['cores']} cores, {about['processor']}, Python {about['python']}, load {about['load_average']:.1f}, "
          f"loaded by {load.generator()}, rounds: {settings.rounds}", file=sys.stderr)  # fmt: skip
    if not machine.can_pin():
        print("server and client share their cores: pinning takes two of them and taskset", file=sys.stderr)
    if settings.quick:
        print("--quick: the figures are rough", file=sys.stderr)


def case_names(text: str) -> list[str]:
    patterns = [name.strip() for name in text.split(",") if name.strip()]
    found = {pattern: fnmatch.filter(CASES, pattern) for pattern in patterns}
    unknown = [pattern for pattern, names in found.items() if not names]
    if unknown or not patterns:
        raise argparse.ArgumentTypeError(f"no case {', '.join(unknown) or 'named'}; there are: {', '.join(CASES)}")
    return list(dict.fromkeys(name for names in found.values() for name in names))


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text).resolve()


def _executable(text: str) -> Path:
    if not os.access(text, os.X_OK) or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not an executable file")
    return Path(text).absolute()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
