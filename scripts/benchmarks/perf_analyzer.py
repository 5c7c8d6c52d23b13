"""One measurement by the official perf_analyzer: its own rate and latencies, and the server's processor time."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import machine
from .figures import CaseError, CaseSkippedError
from .servers import Server
from .settings import Settings

ENVIRONMENT = "PERF_ANALYZER"
NAIAD_PERF = (sys.executable, "-m", "naiad", "perf", "--no-collect-metrics")
"""The program that takes the same options."""
CALIBRATION_CALLS = 2_000
GRACE_SECONDS = 15
ATTEMPTS = 4
WINDOWS = 3
UNTIL_STEADY = ("--stability-percentage", "50", "--max-trials", "10")
UNSTEADY = "Failed to obtain stable measurement"
REQUEST_COUNT = re.compile(r"^\s*Request count: (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Inferences per second and their p99 in us as perf_analyzer saw them; the server's processor time of one in us."""

    rate: float
    p99_us: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask of the model ``identity``: ``calls`` inferences of ``elements`` FP32 values, ``concurrency`` at once.

    A fixed number of calls, since processor time can only be divided by what is known to have been asked.
    """

    elements: int
    concurrency: int
    calls: int


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask of a model that gives FP32 INPUT0 back in some form: ``values`` of them over ``protocol``.

    ``in_regions``: both ways through system shared memory, which perf_analyzer alone can do. ``sequence``: each caller
    sends sequences of about so many requests, which it alone can do as well; 0 for none. ``in_json``: as JSON numbers
    both ways; perf_analyzer makes them of random bits, so about four in a thousand are NaN.
    """

    model: str
    values: int
    protocol: Literal["http", "grpc"]
    in_regions: bool = False
    sequence: int = 0
    in_json: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """What a tool saw in its windows: inferences per second, and latencies in us."""

    rate: float
    p50_us: float
    p95_us: float
    p99_us: float


def find_tool(settings: Settings) -> Path:
    """The perf_analyzer to run, as ``named_tool`` finds it.

    Raises:
        CaseSkippedError: there is none.
    """
    if (tool := named_tool(settings)) is None:
        raise CaseSkippedError(
            f"perf_analyzer was not found: give its path with --perf-analyzer or in {ENVIRONMENT}, or put it on PATH"
        )
    return tool


def named_tool(settings: Settings) -> Path | None:
    """The perf_analyzer that the run was given, the environment's, or the one on the path; None where there is none.

    Raises:
        CaseError: it cannot be executed.
    """
    named = settings.perf_analyzer or os.environ.get(ENVIRONMENT) or shutil.which("perf_analyzer")
    if named is None:
        return None
    if not os.access(named, os.X_OK):
        raise CaseError(f"{named} is not an executable file, expected the path of perf_analyzer")
    return Path(named)


def plan(tool: Path, server: Server, elements: int, concurrency: int, seconds: int, work: Path) -> Plan:
    """The plan that takes about ``seconds``; the short run that tells is also the warm-up."""
    trial = analyze(tool, server, Plan(elements, concurrency, CALIBRATION_CALLS), 1, work)
    return Plan(elements, concurrency, max(CALIBRATION_CALLS, round(trial.rate * seconds)))


def analyze(tool: Path, server: Server, plan: Plan, seconds: int, work: Path) -> Analysis:
    """Carry out a plan that should take about ``seconds``.

    The rate is the calls in flight over the mean latency: for a fixed number of calls perf_analyzer's own rate counts
    whole seconds only. Now and then it stops for good after the last answer, all its threads waiting for each other;
    then it is ended and the measurement repeated.

    Raises:
        CaseError: perf_analyzer failed, never got done or counted another number of inferences.
    """
    what = f"{server.name} under perf_analyzer at {plan.concurrency}"
    for _ in range(ATTEMPTS):
        table = work / f"perf-{time.monotonic_ns()}.csv"
        before = machine.cpu_seconds(server.pid)
        printed = _run(_command(tool, server, plan, table), GRACE_SECONDS + 3 * seconds, what)
        if printed is not None:
            cpu = machine.cpu_seconds(server.pid) - before
            return _analysis(printed, _last_row(table, what), plan, cpu, what)
    raise CaseError(f"{what}: not done in {ATTEMPTS} attempts of {GRACE_SECONDS + 3 * seconds} s")


def observe(
    tool: Sequence[str], server: Server, question: Question, concurrency: int, seconds: int, work: Path
) -> Window:
    """The figures of perf_analyzer, or of a program with its options, over three windows in a row that are alike.

    Each takes a third of ``seconds``; nothing is pinned.

    Args:
        tool: the program and its first arguments.

    Raises:
        CaseError: it failed, never got done or saw no such windows.
    """
    what = f"{server.name} under {Path(tool[-1]).name} at {concurrency}"
    limit_s = GRACE_SECONDS + 5 * seconds
    for _ in range(ATTEMPTS):
        table = work / f"perf-{time.monotonic_ns()}.csv"
        command = [*tool, "-m", question.model, "-u", f"127.0.0.1:{server.port}", "-i", question.protocol]
        command += ["--shape", f"INPUT0:{question.values}", "--concurrency-range", str(concurrency), "--verbose-csv"]
        command += ["-p", str(seconds * 1000 // WINDOWS), *UNTIL_STEADY, "-f", str(table)]
        if question.in_regions:
            command += ["--shared-memory", "system", "--output-shared-memory-size", str(4 * question.values)]
        if question.sequence:
            command += ["--sequence-length", str(question.sequence), "--input-data", "zero"]
        if question.in_json:
            command += ["--input-tensor-format", "json", "--output-tensor-format", "json"]
        if _run(command, limit_s, what) is not None:
            row = _last_row(table, what)
            latencies = (float(row[f"p{percent} latency"]) for percent in (50, 95, 99))
            return Window(float(row["Inferences/Second"]), *latencies)
    raise CaseError(f"{what}: no steady figures in {ATTEMPTS} attempts of at most {limit_s} s")


def _command(tool: Path, server: Server, plan: Plan, table: Path) -> list[str]:
    command = [str(tool), "-m", "identity", "-u", f"127.0.0.1:{server.port}", "-i", "grpc", "--verbose-csv"]
    command += ["--shape", f"INPUT0:{plan.elements}", "--concurrency-range", str(plan.concurrency)]
    return machine.on_core([*command, "--request-count", str(plan.calls), "-f", str(table)], machine.client_core())


def _analysis(printed: str, row: dict[str, str], plan: Plan, cpu: float, what: str) -> Analysis:
    counted = REQUEST_COUNT.search(printed)
    if not counted or int(counted[1]) < plan.calls:
        raise CaseError(f"{what}: asked for {plan.calls} inferences, got: {printed[-2000:]}")
    rate = plan.concurrency / float(row["Avg latency"]) * 1e6
    return Analysis(rate, float(row["p99 latency"]), cpu / int(counted[1]) * 1e6)


def _run(command: list[str], limit_seconds: int, what: str) -> str | None:
    """What it printed; None when it had to be ended or its windows differed too much from one another."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=limit_seconds, check=False)
    except subprocess.TimeoutExpired:
        return None
    printed = finished.stdout + finished.stderr
    if finished.returncode and UNSTEADY in printed:
        return None
    if finished.returncode:
        raise CaseError(f"{what}: ended with code {finished.returncode}: {printed[-2000:]}")
    return printed


def _last_row(table: Path, what: str) -> dict[str, str]:
    rows = list(_rows(table))
    if not rows:
        raise CaseError(f"{what}: it wrote no figures to {table.name}")
    return rows[-1]


def _rows(table: Path) -> Iterator[dict[str, str]]:
    if table.exists():
        with table.open(newline="") as file:
            yield from csv.DictReader(file)
