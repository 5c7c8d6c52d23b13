"""One measurement under load: rate, latencies and the server's processor time, of which nothing was answered wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import machine
from .figures import CaseError
from .infer import Request
from .rounds import alternate
from .servers import Server
from .settings import Settings

SCRIPTS = Path(__file__).resolve().parent.parent
MARK = "RESULT "
GRACE_SECONDS = 60
WRK_SCRIPT = """\
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
wrk.method = "{method}"
{headers}
function done(summary, latency, requests)
  local errors = summary.errors
  local wrong = errors.connect + errors.read + errors.write + errors.timeout + errors.status
  io.write(string.format('{mark}{{"requests": %d, "seconds": %.6f, "wrong": %d, ',
    summary.requests, summary.duration / 1e6, wrong))
  io.write(string.format('"problem": "connect %d, read %d, write %d, timeout %d, status above 399: %d", ',
    errors.connect, errors.read, errors.write, errors.timeout, errors.status))
  io.write(string.format('"p50_us": %.1f, "p95_us": %.1f, "p99_us": %.1f}}\\n',
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one server under load: completed requests, the time they took, latencies and processor time in
    us."""

    requests: int
    seconds: float
    p50_us: float
    p95_us: float
    p99_us: float
    cpu_us: float

    @property
    def rate(self) -> float:
        """Answered requests per second."""
        return self.requests / self.seconds

    @property
    def tail(self) -> float:
        """How many times the median the 99th percentile is."""
        return self.p99_us / self.p50_us


def generator() -> str:
    """Which load generator this machine has: ``wrk``, or that of `naiad perf`, which costs more processor time."""
    return "wrk" if shutil.which("wrk") else "naiad perf"


def measure(
    server: Server,
    request: Request,
    connections: int,
    seconds: int,
    work: Path,
    *,
    pin: bool = True,
    threads: int = 1,
) -> Load:
    """Repeat ``request`` over ``connections`` connections for ``seconds``; ``threads`` are those of ``wrk``.

    Raises:
        CaseError: an answer was not a success, a connection failed, or nothing was answered.
    """
    if shutil.which("wrk"):
        command = _wrk(server, request, connections, seconds, work, threads)
    else:
        command = _naiad(server, request, connections, seconds, work)
    command = machine.on_core(command, machine.client_core() if pin else None)
    return _take(server, command, seconds, f"{connections} connections")


def measure_at(server: Server, request: Request, rate: int, connections: int, seconds: int, work: Path) -> Load:
    """Send ``request`` ``rate`` times a second over at most ``connections`` connections; nothing is pinned.

    Latencies count from the times at which requests were due.

    Raises:
        CaseError: an answer was not a success, or never came.
    """
    command = [*_naiad(server, request, connections, seconds, work), str(rate)]
    return _take(server, command, seconds, f"{rate} requests/s")


def measure_paced(server: Server, request: Request, seconds: int, work: Path) -> Load:
    """Send ``request`` each millisecond over one connection, from a core of its own; latencies count from the sending.

    Raises:
        CaseError: an answer was not a success, or never came.
    """
    arguments = [str(server.port), str(seconds), str(_wire_file(request, work))]
    command = [sys.executable, "-m", "benchmarks.paced", *arguments]
    return _take(server, machine.on_core(command, machine.client_core()), seconds, "a request each millisecond")


def _take(server: Server, command: list[str], seconds: int, load: str) -> Load:
    before = machine.cpu_seconds(server.pid)
    result = _run(command, seconds)
    cpu = machine.cpu_seconds(server.pid) - before
    requests = int(result["requests"])
    if result["wrong"] or not requests:
        found = f"{requests} answers, {result['wrong']} failures ({result['problem']})"
        raise CaseError(f"{server.name} under {load}: {found}")
    return Load(
        requests=requests,
        seconds=float(result["seconds"]),
        p50_us=float(result["p50_us"]),
        p95_us=float(result["p95_us"]),
        p99_us=float(result["p99_us"]),
        cpu_us=cpu / requests * 1e6,
    )


@dataclass(frozen=True, slots=True)
class Contender:
    """A server together with the request it is measured with."""

    server: Server
    request: Request


def compare(
    settings: Settings, contenders: dict[str, Contender], connections: int, *, pin: bool = True
) -> dict[str, list[Load]]:
    """Measure the contenders in alternating rounds, after one second of warm-up each."""

    def take(contender: Contender, seconds: int) -> Load:
        return measure(contender.server, contender.request, connections, seconds, settings.work, pin=pin)

    measures: dict[str, Callable[[], Load]] = {}
    for name, contender in contenders.items():
        take(contender, 1)
        measures[name] = partial(take, contender, settings.seconds)
    return alternate(settings.rounds, measures)


def _wrk(server: Server, request: Request, connections: int, seconds: int, work: Path, threads: int) -> list[str]:
    stem = work / f"request-{hashlib.sha256(request.wire()).hexdigest()[:16]}"
    body, script = stem.with_suffix(".body"), stem.with_suffix(".lua")
    headers = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in request.headers.items())
    body.write_bytes(request.body)
    script.write_text(WRK_SCRIPT.format(body=body, method=request.method, headers=headers, mark=MARK))
    address = f"http://127.0.0.1:{server.port}{request.path}"
    spread = [f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
    return ["wrk", *spread, "-s", str(script), address]


def _naiad(server: Server, request: Request, connections: int, seconds: int, work: Path) -> list[str]:
    arguments = [str(server.port), str(connections), str(seconds), str(_wire_file(request, work))]
    return [sys.executable, "-m", "benchmarks.naiad_load", *arguments]


def _wire_file(request: Request, work: Path) -> Path:
    file = work / f"request-{hashlib.sha256(request.wire()).hexdigest()[:16]}.http"
    file.write_bytes(request.wire())
    return file


def _run(command: list[str], seconds: int) -> dict[str, Any]:
    path = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS, check=False, env=environment
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith(MARK)]
    if finished.returncode or not lines:
        raise CaseError(
            f"{' '.join(command)} ended with code {finished.returncode}: {finished.stdout}{finished.stderr}"
        )
    result: dict[str, Any] = json.loads(lines[0].removeprefix(MARK))
    return result
