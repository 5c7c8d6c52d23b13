"""Measurements by h2load: rate and processor time of gRPC calls, and the tail of HTTP requests at a rate.

Every answer is accounted for.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import machine
from .figures import CaseError, CaseSkippedError
from .grpc_request import INFER, framed
from .infer import Request
from .rounds import alternate
from .servers import Server
from .settings import Settings

GRACE_SECONDS = 60
# Windows of 1 GiB for each stream and each connection: no answer of 600 KB waits for the client's leave.
WINDOWS = ("-w", "30", "-W", "30")
HEADERS = ("-H", "content-type: application/grpc", "-H", "te: trailers")
REQUESTS = re.compile(
    r"^requests: \d+ total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout",
    re.MULTILINE,
)
STATUSES = re.compile(r"^status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", re.MULTILINE)
BODY_BYTES = re.compile(r"^traffic: .*\((\d+)\) data$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fan:
    """How calls are spread: so many connections with so many calls in flight on each. As text ``4x16``."""

    connections: int
    streams: int

    def __str__(self) -> str:
        return f"{self.connections}x{self.streams}"


@dataclass(frozen=True, slots=True)
class GrpcLoad:
    """The result of one server under load: completed calls, the seconds they took, processor time of a call in us."""

    calls: int
    seconds: float
    cpu_us: float

    @property
    def rate(self) -> float:
        """Answered calls per second."""
        return self.calls / self.seconds


@dataclass(frozen=True, slots=True)
class GrpcContender:
    """A server with the message of its calls; ``answer_bytes`` is how long a right answer is, prefix included."""

    server: Server
    message: bytes
    answer_bytes: int


def compare_grpc(settings: Settings, contenders: dict[str, GrpcContender], fan: Fan) -> dict[str, list[GrpcLoad]]:
    """Measure the contenders in alternating rounds, after one second of warm-up each; the client has its own core."""

    def take(contender: GrpcContender, seconds: int) -> GrpcLoad:
        return measure_grpc(contender, fan, seconds, settings.work)

    measures: dict[str, Callable[[], GrpcLoad]] = {}
    for name, contender in contenders.items():
        take(contender, 1)
        measures[name] = partial(take, contender, settings.seconds)
    return alternate(settings.rounds, measures)


def measure_grpc(
    contender: GrpcContender, fan: Fan, seconds: int, work: Path, *, pin: bool = True, log: Path | None = None
) -> GrpcLoad:
    """Repeat one ModelInfer call for ``seconds``; the latency of every call is written to ``log``.

    Raises:
        CaseError: a call failed, an answer was refused or too short, or nothing was answered.
        CaseSkippedError: h2load is not installed.
    """
    command = _command(contender, fan, seconds, work, machine.client_core() if pin else None)
    if log is not None:
        command.insert(-1, f"--log-file={log}")
    before = machine.cpu_seconds(contender.server.pid)
    finished = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS, check=False)
    cpu = machine.cpu_seconds(contender.server.pid) - before
    if finished.returncode:
        raise CaseError(f"{' '.join(command)} ended with code {finished.returncode}: {finished.stderr[-2000:]}")
    calls = answered_calls(finished.stdout, contender.answer_bytes, f"{contender.server.name} under {fan}")
    return GrpcLoad(calls, seconds, cpu / calls * 1e6)


def logged_latencies(log: Path) -> array[float]:
    """The sorted seconds of the calls in a log of h2load, whose lines are: start, HTTP status, microseconds."""
    rows = (line.split("\t") for line in log.read_text().splitlines())
    return array("d", sorted(int(took) / 1e6 for _, status, took, *_ in rows if status == "200"))


def _command(contender: GrpcContender, fan: Fan, seconds: int, work: Path, core: int | None) -> list[str]:
    if not shutil.which("h2load"):
        raise CaseSkippedError("h2load is not installed (apt-get install nghttp2-client)")
    file = work / f"message-{hashlib.sha256(contender.message).hexdigest()[:16]}.grpc"
    file.write_bytes(framed(contender.message))
    spread = ["-t", "1", "-c", str(fan.connections), "-m", str(fan.streams), "-D", str(seconds)]
    address = f"http://127.0.0.1:{contender.server.port}{INFER}"
    return machine.on_core(["h2load", *spread, *WINDOWS, "-d", str(file), *HEADERS, address], core)


def answered_calls(printed: str, answer_bytes: int, what: str) -> int:
    """How many calls h2load counted, all of them with a whole answer.

    h2load does not know ``grpc-status``, which stands in the trailers. A refused call has no message, so the bytes of
    all messages tell: they must be those of as many whole answers as there are answered calls.

    Raises:
        CaseError: they are not, a call failed, or nothing was answered.
    """
    counts, statuses, body = REQUESTS.search(printed), STATUSES.search(printed), BODY_BYTES.search(printed)
    if not counts or not statuses or not body:
        raise CaseError(f"{what}: h2load printed no result: {printed[-2000:]}")
    started, done, succeeded, *failures = map(int, counts.groups())
    refused = sum(map(int, statuses.groups()))
    if not done or succeeded != done or any(failures) or refused:
        raise CaseError(f"{what}: {done} answers, of which not all are good: {counts[0]}; {statuses[0]}")
    received = int(body[1])
    if not done * answer_bytes <= received <= started * answer_bytes:
        mean = received / done
        raise CaseError(
            f"{what}: {done} answers of {mean:.1f} bytes on average, expected {answer_bytes}: refused calls?"
        )
    return done


@dataclass(frozen=True, slots=True)
class HttpLoad:
    """The result of one server under load: answered requests a second, and processor time of a request in us."""

    rate: float
    cpu_us: float


def measure_http(
    server: Server, request: Request, answer_bytes: int, callers: int, seconds: int, work: Path
) -> HttpLoad:
    """Repeat an HTTP request for ``seconds``; the body of each answer has ``answer_bytes``.

    Raises:
        CaseError: an answer was not a success or is not whole, or nothing was answered.
        CaseSkippedError: h2load is not installed.
    """
    command = [*_http1(request, callers, work), "-D", str(seconds), f"http://127.0.0.1:{server.port}{request.path}"]
    before = machine.cpu_seconds(server.pid)
    finished = subprocess.run(
        machine.on_core(command, machine.client_core()),
        capture_output=True,
        text=True,
        timeout=seconds + GRACE_SECONDS,
        check=False,
    )
    cpu = machine.cpu_seconds(server.pid) - before
    done = answered_calls(finished.stdout, answer_bytes, f"{server.name} with {callers} callers")
    return HttpLoad(done / seconds, cpu / done * 1e6)


def _http1(request: Request, connections: int, work: Path, threads: int = 1) -> list[str]:
    """h2load with an HTTP/1.1 request, all but how long and where to."""
    if not shutil.which("h2load"):
        raise CaseSkippedError("h2load is not installed (apt-get install nghttp2-client)")
    file = work / f"request-{hashlib.sha256(request.body).hexdigest()[:16]}.body"
    file.write_bytes(request.body)
    headers = [part for name, value in request.headers.items() for part in ("-H", f"{name}: {value}")]
    return ["h2load", "--h1", "-t", str(threads), "-c", str(connections), "-d", str(file), *headers]


def tail_at(
    server: Server, request: Request, rate: float, fan: Fan, threads: int, seconds: int, work: Path
) -> tuple[float, float]:
    """Send an HTTP request ``rate`` times a second; the 99th percentile of the latencies in ms, and the rate reached.

    Raises:
        CaseError: an answer was not a success, or nothing was answered.
    """
    log = work / "h2load.log"
    command = [*_http1(request, fan.connections, work, threads), "-D", str(seconds), f"--log-file={log}"]
    command += [f"--rps={rate / fan.connections:.0f}", f"http://127.0.0.1:{server.port}{request.path}"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS, check=False)
    counts = REQUESTS.search(finished.stdout)
    if finished.returncode or not counts:
        raise CaseError(
            f"h2load ended with code {finished.returncode}: {finished.stdout[-500:]}{finished.stderr[-500:]}"
        )
    _, done, succeeded, *failures = map(int, counts.groups())
    if not done or succeeded != done or any(failures):
        raise CaseError(
            f"{done} answers of {server.name} at {rate:.0f} requests/s, of which not all are good: {counts[0]}"
        )
    latencies = logged_latencies(log)
    return latencies[int(0.99 * (len(latencies) - 1))] * 1e3, done / seconds
