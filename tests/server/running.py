"""A real server process for tests: started, waited for with a bound, asked, told to stop."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_S = 60.0
STOP_S = 40.0
ANSWER_S = 20.0
# A bound of so many seconds and more only ends a test that hangs. A busy machine gets more time, up to the limit below.
HANGS_S = 5.0
BUSY = 3
HANGS_AT_MOST_S = 60.0


class ServerDidNotError(AssertionError):
    """The server did not do what a test waited for; the text carries its log."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer as it came: header names in lower case, the body after any chunks were joined."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes

    @property
    def type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0]

    def json(self) -> Any:
        """The JSON part of the body: the head alone where binary data follow."""
        length = self.headers.get("inference-header-content-length")
        return json.loads(self.body if length is None else self.body[: int(length)])

    @property
    def error(self) -> str:
        """The text of an error."""
        return str(json.loads(self.body)["error"])


def until(condition: Callable[[], object], within_s: float, what: str) -> None:
    """Wait until ``condition`` holds; fails after ``within_s`` seconds, which are stretched from ``HANGS_S`` on."""
    if within_s >= HANGS_S:
        within_s = max(within_s, min(BUSY * within_s, HANGS_AT_MOST_S))
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise ServerDidNotError(f"not within {within_s} s: {what}")
        time.sleep(0.01)


def environment() -> dict[str, str]:
    """This process's environment without settings of the server."""
    return {k: v for k, v in os.environ.items() if not k.startswith("NAIAD_")}


@dataclass(slots=True)
class RunningServer:
    """A server process. ``http``, ``grpc`` and ``metrics`` are its ports on 127.0.0.1 once it listens; 0 before."""

    process: subprocess.Popen[bytes]
    log_file: Path
    host: str = "127.0.0.1"
    http: int = field(default=0)
    grpc: int = field(default=0)
    metrics: int = field(default=0)

    @property
    def url(self) -> str:
        """``host:port`` of the HTTP service."""
        return f"{self.host}:{self.http}"

    @property
    def grpc_url(self) -> str:
        """``host:port`` of the gRPC service."""
        return f"{self.host}:{self.grpc}"

    @property
    def log(self) -> str:
        """All the process has written so far, standard output and standard error together."""
        return self.log_file.read_text(errors="replace")

    # Waiting

    def wait_listening(self) -> None:
        """Wait until the HTTP port is known."""
        self._until(lambda: self._port("HTTPService"), "listens")
        self.http = self._port("HTTPService")
        self.grpc = self._port("GRPCInferenceService")

    def wait_ready(self) -> None:
        """Wait until all models have loaded, or failed to, and requests are served."""
        self.wait_listening()
        self._until(lambda: " is ready: " in self.log, "serves")
        self.metrics = self._port("Metrics Service")

    def wait_for(self, text: str, within_s: float = START_S) -> None:
        """Wait until the log holds ``text``."""
        self._until(lambda: text in self.log, f"logs {text!r}", within_s)

    def wait_exit(self, within_s: float = STOP_S) -> int:
        """The exit code, once the process ends by itself."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise ServerDidNotError(f"did not end within {within_s} s:\n{self.log}") from None

    def _until(self, condition: Callable[[], object], what: str, within_s: float = START_S) -> None:
        def met() -> bool:
            if condition():
                return True
            if self.process.poll() is not None and not condition():
                raise ServerDidNotError(f"ended with {self.process.returncode} before it {what}:\n{self.log}")
            return False

        try:
            until(met, within_s, what)
        except ServerDidNotError as error:
            raise ServerDidNotError(f"{error}\n{self.log}") from None

    def _port(self, service: str) -> int:
        found = re.search(rf"Started {service} at \S+:(\d+)\b", self.log)
        return int(found[1]) if found else 0

    # Stopping

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """Tell it to stop and give back its exit code; kills it when it does not."""
        if self.process.poll() is None:
            self.signal()
        try:
            return self.wait_exit()
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    # Asking

    def connect(self, port: int = 0) -> socket.socket:
        """A plain connection to the HTTP port, or to ``port``."""
        return socket.create_connection((self.host, port or self.http), timeout=ANSWER_S)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        port: int = 0,
    ) -> Answer:
        """Send one request on a connection of its own and read the answer."""
        with self.connect(port) as peer:
            peer.sendall(request_bytes(method, path, body, headers))
            return read_answer(peer, method)

    def get(self, path: str) -> Answer:
        """GET ``path``."""
        return self.ask("GET", path)

    def post(self, path: str, value: object) -> Answer:
        """POST ``value`` as JSON, or as it is when it is bytes."""
        return self.ask("POST", path, value if isinstance(value, bytes) else json.dumps(value).encode())

    def infer(self, model: str, value: object) -> Answer:
        """POST an inference request."""
        return self.post(f"/v2/models/{model}/infer", value)

    def statistics(self, model: str) -> dict[str, Any]:
        """The statistics of a model's only version."""
        (found,) = self.get(f"/v2/models/{model}/stats").json()["model_stats"]
        return dict(found)

    def wait_pending(self, model: str, count: int) -> None:
        """Wait until ``count`` requests wait in the queue of a model; the one that runs is not among them."""
        name = f'nv_inference_pending_request_count{{model="{model}",'

        def pending() -> float:
            page = self.ask("GET", "/metrics", port=self.metrics).body.decode()
            return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(name)), -1)

        until(lambda: pending() == count, 10, f"{count} requests wait for {model}")

    def memory_bytes(self) -> int:
        """Resident memory of the process."""
        import psutil

        return int(psutil.Process(self.process.pid).memory_info().rss)


def request_bytes(method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A request as it goes over the wire; a content length is added unless ``body`` is None or one is given."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"] + [f"{k}: {v}" for k, v in headers]
    if body is not None and not any(k.lower() in ("content-length", "transfer-encoding") for k, _ in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def read_answer(peer: socket.socket, method: str = "GET") -> Answer:
    """Read one answer; bytes past it must not follow.

    Raises:
        ConnectionError: the server closed before the answer was complete.
    """
    buffer = bytearray()
    while b"\r\n\r\n" not in buffer:
        _receive(peer, buffer)
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    first, *fields = head.decode("latin1").split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)}
    _, status, reason = first.split(" ", 2)
    body = bytearray(rest)
    if headers.get("transfer-encoding") == "chunked":
        while not body.endswith(b"0\r\n\r\n"):
            _receive(peer, body)
        return Answer(int(status), reason, headers, _joined(bytes(body)))
    expected = 0 if method == "HEAD" else int(headers.get("content-length", "0"))
    while len(body) < expected:
        _receive(peer, body)
    return Answer(int(status), reason, headers, bytes(body))


def _joined(body: bytes) -> bytes:
    """The body that came in chunks."""
    joined = bytearray()
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        joined += rest[:length]
        assert rest[length : length + 2] == b"\r\n"
        body = rest[length + 2 :]
    return bytes(joined)


def _receive(peer: socket.socket, buffer: bytearray) -> None:
    data = peer.recv(1 << 18)
    if not data:
        raise ConnectionError(f"closed after {bytes(buffer[:300])!r}")
    buffer += data


def start(log_file: Path, *arguments: object, ports: bool = True, **options: Any) -> RunningServer:
    """Start ``naiad serve ARGUMENTS`` on free ports of 127.0.0.1, unless they say otherwise, and give it back at once.

    ``ports=False`` leaves all listener options to ``arguments``. ``options`` go to ``subprocess.Popen``.
    """
    addresses = ("--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1")
    free = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
    listen = (*addresses, *free) if ports else ()
    command = [sys.executable, "-m", "naiad", "serve", *listen, *map(str, arguments)]
    options.setdefault("env", environment())
    with log_file.open("wb") as log:
        options.setdefault("stdout", log)
        # A session of its own: keys pressed where the tests run do not reach it.
        process = subprocess.Popen(command, stderr=log, start_new_session=True, **options)
    return RunningServer(process, log_file)


@contextmanager
def serving(log_file: Path, *arguments: object, **options: Any) -> Iterator[RunningServer]:
    """A server that serves; at the end it must stop with exit code 0 unless the test has ended it."""
    server = start(log_file, *arguments, **options)
    try:
        server.wait_ready()
        yield server
        if server.process.poll() is None:
            code = server.stop()
            assert code == 0, server.log
    finally:
        server.kill()


def run_to_end(log_file: Path, *arguments: object, **options: Any) -> tuple[int, str]:
    """Start a server that is meant to end by itself: its exit code and what it wrote."""
    server = start(log_file, *arguments, **options)
    try:
        return server.wait_exit(START_S), server.log
    finally:
        server.kill()
