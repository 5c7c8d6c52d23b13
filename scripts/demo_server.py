"""A ``naiad serve`` process of the demo's own: started, waited for, shown and stopped."""

from __future__ import annotations

import collections
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STARTED = re.compile(r"Started HTTPService at \S*:(\d+)")
ERROR = re.compile(r"E\d{4} ")
KEPT_LINES, KEPT_ERRORS = 100, 10


class ServerFailedError(Exception):
    """The server ended, or was not ready in time; the text carries the end of its log."""


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of every address of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


class DemoServer:
    """The server over one model repository, ready to be asked. ``url`` is ``localhost:PORT``.

    Raises:
        ServerFailedError: the server did not become ready.
    """

    def __init__(self, repository: Path, http_port: int, metrics_port: int, ready_s: float, show_log: bool) -> None:
        self.url = ""
        self.show_log = show_log
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._listening = threading.Event()
        self._process = self._start(repository, http_port, metrics_port)
        self._reader = threading.Thread(target=self._read_log, name="server log")
        self._reader.start()
        try:
            self._wait_until_ready(time.monotonic() + ready_s)
        except BaseException:
            self.stop()
            raise

    def wait(self) -> int:
        """Wait until the server ends by itself; its exit status."""
        return self._process.wait()

    def stop(self, within_s: float = 35.0) -> int:
        """Ask the server to end, insist after ``within_s`` seconds; its exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reader.join()
        return self._process.wait()

    @staticmethod
    def _start(repository: Path, http_port: int, metrics_port: int) -> subprocess.Popen[str]:
        ports = ["--http-port", str(http_port), "--metrics-port", str(metrics_port), "--grpc-port", "0"]
        command = [sys.executable, "-m", "naiad", "serve", "--model-repository", str(repository), *ports]
        # In a session of its own, so that Ctrl-C reaches the demo alone and the server hears of it once.
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def _read_log(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as log:
            for line in log:
                self._take(line.rstrip("\n"))
        self._listening.set()

    def _take(self, line: str) -> None:
        self._lines.append(line)
        if self.show_log:
            print(line, flush=True)
        started = STARTED.search(line)
        if started is not None:
            self.url = f"localhost:{started[1]}"
            self._listening.set()

    def _wait_until_ready(self, deadline: float) -> None:
        while not (self._listening.wait(0.1) and self._is_ready()):
            if self._process.poll() is not None:
                self._reader.join()
                raise ServerFailedError(f"the server ended with status {self._process.returncode}:{self._end_of_log()}")
            if time.monotonic() > deadline:
                raise ServerFailedError(f"the server is not ready in time:{self._end_of_log()}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        if not self.url:
            return False
        try:
            with urllib.request.urlopen(f"http://{self.url}/v2/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _end_of_log(self) -> str:
        lines = [line for line in self._lines if ERROR.match(line)][:KEPT_ERRORS] or list(self._lines)
        return "".join(f"\n  {line}" for line in lines)
