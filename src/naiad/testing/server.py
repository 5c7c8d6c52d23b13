"""Server processes: started, waited for with a bound, sent requests, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from naiad.testing.http import RESPONSE_S, HttpResponse, read_response, request_bytes
from naiad.testing.waiting import ServerStateError, wait_until

START_S: Final = 60.0
"""The longest time until a server is ready, in seconds."""

STOP_S: Final = 40.0
"""The longest time for a server to drain and to end, in seconds."""


def server_environment() -> dict[str, str]:
    """This process's environment without the server's settings (``NAIAD_*``)."""
    return {k: v for k, v in os.environ.items() if not k.startswith("NAIAD_")}


@dataclass(slots=True)
class RunningServer:
    """A server process on 127.0.0.1.

    Attributes:
        process: the process.
        log_file: the file with its standard output and standard error.
        host: the address of its listeners.
        http, grpc, metrics: their ports; 0 until the server listens.
    """

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
        """The log so far."""
        return self.log_file.read_text(errors="replace")

    # Waiting

    def wait_listening(self) -> None:
        """Wait until the ports of the HTTP and gRPC services are known."""
        # The gRPC listener starts before the HTTP listener, so its port is known by then.
        self._until(lambda: self._port("HTTPService"), "listens")
        self.http = self._port("HTTPService")
        self.grpc = self._port("GRPCInferenceService")

    def wait_ready(self, within_s: float = START_S) -> None:
        """Wait until every model of the start is loaded or has failed, and requests are served."""
        self.wait_listening()
        self._until(lambda: " is ready: " in self.log, "serves", within_s)
        self.metrics = self._port("Metrics Service")

    def wait_for(self, text: str, within_s: float = START_S) -> None:
        """Wait until the log holds ``text``."""
        self._until(lambda: text in self.log, f"logs {text!r}", within_s)

    def wait_exit(self, within_s: float = STOP_S) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise ServerStateError(f"did not end within {within_s} s:\n{self.log}") from None

    def _until(self, condition: Callable[[], object], what: str, within_s: float = START_S) -> None:
        def met() -> bool:
            if condition():
                return True
            # Asked again: the process may have logged its last line and ended between the two looks.
            if self.process.poll() is not None and not condition():
                raise ServerStateError(f"ended with {self.process.returncode} before it {what}:\n{self.log}")
            return False

        try:
            wait_until(met, within_s, what)
        except ServerStateError as error:
            raise ServerStateError(f"{error}\n{self.log}") from None

    def _port(self, service: str) -> int:
        found = re.search(rf"Started {service} at \S+:(\d+)\b", self.log)
        return int(found[1]) if found else 0

    # Stopping

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code; a server that does not end in time is killed."""
        if self.process.poll() is None:
            self.signal()
        try:
            return self.wait_exit()
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process at once."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    # Requests

    def connect(self, port: int = 0) -> socket.socket:
        """A TCP connection to ``port``, by default that of the HTTP service."""
        return socket.create_connection((self.host, port or self.http), timeout=RESPONSE_S)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        port: int = 0,
    ) -> HttpResponse:
        """Send one HTTP request on a connection of its own and return the response."""
        with self.connect(port) as connection:
            connection.sendall(request_bytes(method, path, body, headers))
            return read_response(connection, method)

    def get(self, path: str) -> HttpResponse:
        """GET ``path``."""
        return self.request("GET", path)

    def post(self, path: str, value: object) -> HttpResponse:
        """POST ``value``: bytes as they are, anything else as JSON."""
        return self.request("POST", path, value if isinstance(value, bytes) else json.dumps(value).encode())

    def infer(self, model: str, value: object) -> HttpResponse:
        """POST an inference request to the model's current version."""
        return self.post(f"/v2/models/{model}/infer", value)

    def statistics(self, model: str) -> dict[str, Any]:
        """The statistics of a model that has one version."""
        (found,) = self.get(f"/v2/models/{model}/stats").json()["model_stats"]
        return dict(found)

    def index(self) -> list[dict[str, str]]:
        """The rows of the repository index."""
        return list(self.post("/v2/repository/index", {}).json())

    def metrics_page(self) -> str:
        """The page of the metrics service."""
        return self.request("GET", "/metrics", port=self.metrics).body.decode()

    def wait_pending(self, model: str, count: int) -> None:
        """Wait until the queue of a model holds ``count`` requests; running requests are not in the queue."""
        name = f'nv_inference_pending_request_count{{model="{model}",'
        wait_until(lambda: self._metric(name) == count, 10, f"{count} requests wait for {model}")

    def wait_in_flight(self, count: int) -> None:
        """Wait until the server has accepted ``count`` requests that have no answer yet, of all models together."""
        wait_until(lambda: self._metric("naiad_requests_in_flight ") == count, 10, f"{count} requests in flight")

    def _metric(self, beginning: str) -> float:
        """The value on the first line of the metrics page that begins so; -1 without one."""
        lines = self.metrics_page().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(beginning)), -1)

    def memory_bytes(self) -> int:
        """The resident memory of the server process, without its workers."""
        import psutil

        return int(psutil.Process(self.process.pid).memory_info().rss)


def start_server(log_file: Path, *arguments: object, ports: bool = True, **options: Any) -> RunningServer:
    """Start ``naiad serve`` and return at once.

    Args:
        log_file: gets the output of the server.
        arguments: the command line behind ``naiad serve``.
        ports: listen on free ports of 127.0.0.1; False leaves the listeners to ``arguments``.
        options: for ``subprocess.Popen``.
    """
    addresses = ("--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1")
    free = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
    listen = (*addresses, *free) if ports else ()
    command = [sys.executable, "-m", "naiad", "serve", *listen, *map(str, arguments)]
    options.setdefault("env", server_environment())
    with log_file.open("wb") as log:
        options.setdefault("stdout", log)
        # A session of its own: a Ctrl-C where the tests run does not reach the server.
        process = subprocess.Popen(command, stderr=log, start_new_session=True, **options)
    return RunningServer(process, log_file)


@contextmanager
def serving(log_file: Path, *arguments: object, start_s: float = START_S, **options: Any) -> Iterator[RunningServer]:
    """A server that is ready; the other arguments are those of ``start_server``.

    Args:
        start_s: the longest time until it is ready, in seconds; large frameworks may need more than the default.

    Raises:
        AssertionError: the server did not drain and end with exit code 0 when the block was left.
        ServerStateError: it did not become ready in time.
    """
    server = start_server(log_file, *arguments, **options)
    try:
        server.wait_ready(start_s)
        yield server
        # A test may have ended the server itself, and checks the exit code then.
        if server.process.poll() is None and (code := server.stop()) != 0:
            raise AssertionError(f"the server ended with exit code {code}:\n{server.log}")
    finally:
        server.kill()


def run_to_end(log_file: Path, *arguments: object, **options: Any) -> tuple[int, str]:
    """Run a server that ends by itself; returns its exit code and its log."""
    server = start_server(log_file, *arguments, **options)
    try:
        return server.wait_exit(START_S), server.log
    finally:
        server.kill()
