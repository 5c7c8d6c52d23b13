"""The servers under measurement: started as a user starts them, watched through their log, always stopped."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from . import machine
from .figures import CaseError
from .infer import Request, ask

SCRIPTS = Path(__file__).resolve().parent.parent
HTTP = "HTTPService"
GRPC = "GRPCInferenceService"
METRICS = "Metrics Service"
LISTEN = (
    *("--http-address", "127.0.0.1", "--http-port", "0", "--metrics-port", "0"),
    *("--grpc-address", "127.0.0.1", "--grpc-port", "0"),
)
READY = Request("/v2/health/ready", {}, b"", method="GET")
PAGE = Request("/metrics", {}, b"", method="GET")
_REPLICAS = re.compile(r"^naiad_replicas\{.*\} (\d+)$", re.MULTILINE)
START_SECONDS = 120.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; ``ready_seconds`` passed between its exec and its first answer that it is ready.

    ``port`` is the one that is measured; ``ports`` has those of all known services.
    """

    name: str
    pid: int
    port: int
    ready_seconds: float
    ports: Mapping[str, int] = field(default_factory=dict)

    def at(self, service: str) -> Server:
        """The same server, measured at the port of another service."""
        return replace(self, port=self.ports[service])


@contextmanager
def naiad(
    repository: Path, work: Path, core: int | None = None, options: Sequence[str] = (), service: str = HTTP
) -> Iterator[Server]:
    """Naiad on ``repository`` and ports of its own choice, ready for requests; ``port`` is that of ``service``.

    Raises:
        CaseError: it ended or did not become ready; the text carries the end of its log.
    """
    command = [sys.executable, "-m", "naiad", "serve", "--model-repository", str(repository), *LISTEN, *options]
    log = work / f"naiad-{time.monotonic_ns()}.log"
    began = time.perf_counter()
    with _process(machine.on_core(command, core), log, {}) as process:
        http_port = _await(process, log, lambda: _printed_port(log, HTTP))
        _await(process, log, lambda: _answers_ready(http_port) or None)
        ready_seconds = time.perf_counter() - began
        port = _await(process, log, lambda: _printed_port(log, service))
        metrics_port = _await(process, log, lambda: _printed_port(log, METRICS))
        ports = {HTTP: http_port, METRICS: metrics_port, service: port}
        yield Server("naiad", process.pid, port, ready_seconds, ports)


def await_replicas(server: Server, count: int) -> None:
    """Wait until ``count`` front-end processes run each model of a server themselves.

    Raises:
        CaseError: they do not.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = _REPLICAS.findall(ask(server.ports[METRICS], PAGE)[2].decode())
        if found and all(int(number) == count for number in found):
            return
        time.sleep(POLL_SECONDS)
    raise CaseError(f"of {count} front-end processes not all run the models themselves: naiad_replicas is {found}")


@contextmanager
def reference(executable: Path, repository: Path, work: Path, options: Sequence[str] = ()) -> Iterator[Server]:
    """The reference server with ``options`` on the same ``repository``, ready; ``port`` is that of HTTP.

    Raises:
        CaseError: it ended or did not become ready; the text carries the end of its log.
    """
    ports = {service: machine.free_port() for service in (HTTP, GRPC, METRICS)}
    command = [str(executable), "--model-repository", str(repository), *options]
    for name, port in zip(("http", "grpc", "metrics"), ports.values(), strict=True):
        command += [f"--{name}-address", "127.0.0.1", f"--{name}-port", str(port)]
    log = work / f"reference-{time.monotonic_ns()}.log"
    began = time.perf_counter()
    with _process(command, log, {}) as process:
        _await(process, log, lambda: _answers_ready(ports[HTTP]) or None)
        yield Server("reference", process.pid, ports[HTTP], time.perf_counter() - began, ports)


@contextmanager
def peer(kind: Literal["aio", "sync"], work: Path, core: int | None = None) -> Iterator[Server]:
    """The identity model on grpcio's own servers (``grpc_peers``).

    Raises:
        CaseError: it ended or does not listen; the text carries the end of its log.
    """
    log = work / f"peer-{kind}-{time.monotonic_ns()}.log"
    command = machine.on_core([sys.executable, "-m", "benchmarks.grpc_peers", kind], core)
    began = time.perf_counter()
    with _process(command, log, {"PYTHONPATH": str(SCRIPTS)}) as process:
        port = _await(process, log, lambda: _printed_port(log, GRPC))
        yield Server(f"grpc {kind}", process.pid, port, time.perf_counter() - began)


@contextmanager
def sketch(
    script: Path, work: Path, core: int | None = None, arguments: Sequence[str] = (), model: Path | None = None
) -> Iterator[Server]:
    """One of the yardstick's sketches on a free port; ``model`` is the network it runs, if any."""
    if not script.exists():
        raise CaseError(f"--yardstick has no {script.name}: looked for {script}")
    port = machine.free_port()
    log = work / f"{script.stem}-{time.monotonic_ns()}.log"
    environment = {"PYTHONDONTWRITEBYTECODE": "1"} | ({"MLP": str(model)} if model else {})
    command = machine.on_core([sys.executable, str(script), str(port), *arguments], core)
    began = time.perf_counter()
    with _process(command, log, environment) as process:
        _await(process, log, lambda: _listens(port) or None)
        yield Server(script.stem, process.pid, port, time.perf_counter() - began)


@contextmanager
def _process(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment() | environment,
        )
    try:
        yield process
    except (CaseError, OSError) as error:
        if (code := process.poll()) is None:
            raise
        raise CaseError(f"{error}\nthe server had ended with code {code}; its log ends:\n{_tail(log)}") from error
    finally:
        stop(process)


def _environment() -> dict[str, str]:
    """That of this process; but where a server is installed, the bytecode of its modules is there."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and end it when it does not."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], log: Path, look: Callable[[], int | None]) -> int:
    deadline = time.monotonic() + START_SECONDS
    while (found := look()) is None:
        if process.poll() is not None:
            raise CaseError("the server ended before it was ready")
        if time.monotonic() > deadline:
            raise CaseError(f"the server was not ready after {START_SECONDS:g} s; its log ends:\n{_tail(log)}")
        time.sleep(POLL_SECONDS)
    return found


def _printed_port(log: Path, service: str) -> int | None:
    match = re.search(rf"Started {service} at 127\.0\.0\.1:(\d+)", log.read_text(errors="replace"))
    return int(match[1]) if match else None


def _answers_ready(port: int) -> bool:
    try:
        return ask(port, READY)[0] == 200
    except OSError:
        return False


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _tail(log: Path, lines: int = 8) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
