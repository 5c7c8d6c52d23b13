"""Runs of ``naiad perf`` in tests: as a command, and inside the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from naiad.perf.options import parse_perf
from naiad.perf.progress import Progress
from naiad.perf.results import LevelResult, Report
from naiad.perf.run import run_perf
from naiad.testing import server_environment

RUN_S = 60


def measure(*words: object, progress: Progress | None = None) -> Report:
    """The report of a run with the options ``words``, without a look at metrics that nobody asked for."""
    given = list(map(str, words))
    if "--metrics-url" not in given:
        given.append("--no-collect-metrics")
    return run_perf(parse_perf(given, {}), progress)


def measure_level(*words: object) -> LevelResult:
    """The only level of a run."""
    (level,) = measure(*words).levels
    return level


@contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[str]]:
    """``naiad perf`` as a process, which ends with the block."""
    command = [sys.executable, "-m", "naiad", "perf", *map(str, words), "--no-collect-metrics"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=server_environment()
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_line(process: subprocess.Popen[str], text: str, *, is_error: bool = False) -> None:
    """Read the output, or what is written to standard error, up to a line that holds ``text``."""
    stream = process.stderr if is_error else process.stdout
    assert stream is not None
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"the output has no line with {text!r}")


def run_command(*words: object) -> tuple[int, str, str]:
    """Exit code, output and errors of ``naiad perf``."""
    with started(*words) as process:
        out, errors = process.communicate(timeout=RUN_S)
    return process.returncode, out, errors


def windows(interval_ms: int, trials: int = 3, stability: int = 900) -> Sequence[object]:
    """Options for short windows, any of which are good enough."""
    return ("-p", interval_ms, "-r", trials, "-s", stability)
