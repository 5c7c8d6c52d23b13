"""One measurement of one server by Locust."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from .. import machine
from ..figures import CaseError
from .environments import environment
from .wires import WireRequest

REQUIREMENTS = ("locust==2.47.0", "grpcio==1.85.1")
FILE = Path(__file__).with_name("locustfile.py")
TIMEOUT_S = 10
GRACE_SECONDS = 60
SAMPLE_SECONDS = 0.5
BUSY = 0.85


@dataclass(frozen=True, slots=True)
class UserLoad:
    """So many users, each with so many requests a second at most; 0 for as many as the responses allow."""

    users: int
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one load.

    Attributes:
        rate: good responses a second.
        cpu_us: processor time of the server's processes for a response.
        memory: the most memory of the server's processes during the load in bytes; what they share counts once.
        failures: requests that got no good response.
        problem: the most frequent failure in words, or "".
        busy: the share of its core that Locust used; near 1 the rate is Locust's and not the server's.
    """

    rate: float
    p95_ms: float
    cpu_us: float
    memory: int
    requests: int
    failures: int
    problem: str
    busy: float


def put_load(pid: int, port: int, request: WireRequest, load: UserLoad, seconds: int, work: Path) -> Seen:
    """Let Locust's users repeat ``request`` for ``seconds``; it has the core for load generators.

    Raises:
        CaseError: Locust failed; failures of requests are figures.
        CaseSkippedError: Locust cannot be installed.
    """
    command = machine.on_core(_command(load, seconds), machine.client_core())
    stem = work / f"locust-{time.monotonic_ns()}"
    result, variables = _write_plan(stem, port, request, load)
    peak = MemoryPeak(pid)
    before = machine.cpu_seconds(pid)
    with peak:
        _run(command, os.environ | variables, seconds, result)
    cpu = machine.cpu_seconds(pid) - before
    return _seen(json.loads(result.read_text()), cpu, peak.bytes)


def _command(load: UserLoad, seconds: int) -> list[str]:
    program = str(environment("locust", REQUIREMENTS) / "locust")
    users = ("--users", str(load.users), "--spawn-rate", str(load.users), "--run-time", f"{seconds}s")
    # What is under way at the end is waited for: it costs processor time like the rest.
    return [program, "-f", str(FILE), "--headless", "--only-summary", "--stop-timeout", str(TIMEOUT_S), *users]


def _write_plan(stem: Path, port: int, request: WireRequest, load: UserLoad) -> tuple[Path, dict[str, str]]:
    body, plan, result = (stem.with_suffix(f".{kind}") for kind in ("body", "plan", "result"))
    body.write_bytes(request.body)
    plan.write_text(
        json.dumps(
            {
                "protocol": request.protocol,
                "port": port,
                "path": request.path,
                "headers": dict(request.headers),
                "body": str(body),
                "rate": load.rate,
                "timeout_s": TIMEOUT_S,
            }
        )
    )
    return result, {"LOAD_PLAN": str(plan), "LOAD_RESULT": str(result)}


def _run(command: list[str], variables: dict[str, str], seconds: int, result: Path) -> None:
    limit_s = seconds + TIMEOUT_S + GRACE_SECONDS
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise CaseError(f"Locust was not done after {limit_s} s") from None
    if done.returncode or not result.exists():
        raise CaseError(f"Locust ended with code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def _seen(found: dict[str, Any], cpu: float, memory: int) -> Seen:
    requests, failures = int(found["requests"]), int(found["failures"])
    good = requests - failures
    problems = sorted(found["problems"].items(), key=lambda pair: -pair[1])
    return Seen(
        rate=good / found["seconds"] if found["seconds"] else 0.0,
        p95_ms=float(found["p95_ms"]),
        cpu_us=cpu / good * 1e6 if good else 0.0,
        memory=memory,
        requests=requests,
        failures=failures,
        problem=problems[0][0] if problems else "",
        busy=found["cpu_seconds"] / found["own_seconds"],
    )


class MemoryPeak:
    """Looks again and again how much memory a process and its descendants have, from a thread."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            try:
                self.bytes = max(self.bytes, machine.proportional_bytes(self._pid))
            except psutil.NoSuchProcess:
                return
