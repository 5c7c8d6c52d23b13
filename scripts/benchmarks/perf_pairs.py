"""`naiad perf` and the original perf_analyzer under the same command line, one after the other on the same server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from . import machine
from .figures import CaseError
from .perf_analyzer import GRACE_SECONDS, NAIAD_PERF, Question, Window, observe
from .rounds import alternate
from .servers import GRPC, HTTP, Server
from .settings import Settings

OURS, THEIRS = "naiad perf", "perf_analyzer"
PAIRS = 9
SERVICES = {"http": HTTP, "grpc": GRPC}
LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ClientCost:
    """What a run of `naiad perf` took for itself.

    Attributes:
        cpu_us: processor time of a request, in us.
        p50_us: the median latency, in us.
        rate: inferences per second.
        peak_bytes: the most memory that its process had.
    """

    cpu_us: float
    p50_us: float
    rate: float
    peak_bytes: int


def rounds(settings: Settings) -> int:
    """How many pairs are taken."""
    return settings.rounds if settings.quick else max(settings.rounds, PAIRS)


def take_pairs(
    settings: Settings, tool: Path, server: Server, question: Question, concurrency: int
) -> dict[str, list[Window]]:
    """Both tools in turns, on a server that each of them has warmed up."""
    at = server.at(SERVICES[question.protocol])
    measures = {
        name: partial(observe, command, at, question, concurrency, settings.seconds, settings.work)
        for name, command in ((OURS, NAIAD_PERF), (THEIRS, (str(tool),)))
    }
    for measure in measures.values():
        measure()
    return alternate(rounds(settings), measures)


def cost_of_client(
    settings: Settings, server: Server, question: Question, concurrency: int, options: Sequence[str] = ()
) -> ClientCost:
    """One run of `naiad perf` on the core for load generators, whose report says what it took.

    Raises:
        CaseError: it failed, or a request did.
    """
    report = settings.work / f"perf-{time.monotonic_ns()}.json"
    command = [*NAIAD_PERF, "-m", question.model, "-u", f"127.0.0.1:{server.at(SERVICES[question.protocol]).port}"]
    command += ["-i", question.protocol, "--shape", f"INPUT0:{question.values}"]
    command += ["--concurrency-range", str(concurrency), "-p", str(settings.seconds * 1000), "-r", "3", "-s", "50"]
    command += ["--json", str(report), *options]
    peak_bytes = _run(machine.on_core(command, machine.client_core()), GRACE_SECONDS + 5 * settings.seconds)
    (level,) = json.loads(report.read_text())["levels"]
    merged = level["merged"]
    if merged["errors"] or not merged["requests"]:
        raise CaseError(f"naiad perf on {server.name}: {merged['requests']} requests, errors: {merged['errors']}")
    rate = merged["requests"] / (merged["ended_ns"] - merged["began_ns"]) * 1e9
    return ClientCost(merged["client"]["cpu_us_per_request"], _p50_us(merged["latency"]), rate, peak_bytes)


def _p50_us(state: dict[str, object]) -> float:
    from naiad.perf.histogram import DurationHistogram

    return DurationHistogram.from_state(state).percentile(50) / 1e3


def _run(command: Sequence[str], limit_seconds: float) -> int:
    """Run a command; the peak of its memory in bytes."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + limit_seconds
        peak_bytes = 0
        while process.poll() is None:
            peak_bytes = max([peak_bytes, *_peaks(process.pid)])
            if time.monotonic() > end:
                process.kill()
                raise CaseError(f"{' '.join(command)} was not done after {limit_seconds:g} s")
            time.sleep(LOOK_SECONDS)
        if process.returncode:
            errors = process.stderr.read() if process.stderr else ""
            raise CaseError(f"{' '.join(command)} ended with code {process.returncode}: {errors[-2000:]}")
    return peak_bytes


def _peaks(pid: int) -> Iterator[int]:
    """The memory of a process, as far as it lives and is the one that was asked for."""
    try:
        yield psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return
