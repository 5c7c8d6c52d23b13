"""A real Redis for tests: on a free port of this machine, without a file, ended by whoever began it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

START_S = 30.0
needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="there is no redis-server here: apt-get install redis-server"
)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class RedisServer:
    """One server process that can be stopped, held and begun again on the same port."""

    def __init__(self, folder: Path, *arguments: str, port: int = 0, tls: bool = False) -> None:
        self.port = port or free_port()
        self._folder = folder
        self._arguments = arguments
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **client: object) -> None:
        """Begin, and wait until it answers."""
        ports = ("--port", "0", "--tls-port", str(self.port)) if self._tls else ("--port", str(self.port))
        command = ("redis-server", *ports, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", ".")
        with open(self._folder / "redis.log", "ab") as log:
            self._process = subprocess.Popen(
                (*command, *self._arguments), cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._folder / "redis.log").read_text())
            time.sleep(0.01)

    def client(self, **more: object) -> redis.Redis:
        """A client of it; the caller closes it."""
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10, **more)  # type: ignore[arg-type]

    def hold(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def running_redis(folder: Path, *arguments: str, tls: bool = False) -> Iterator[RedisServer]:
    """A server that runs, with further ``arguments``."""
    server = RedisServer(folder, *arguments, tls=tls)
    try:
        server.start()
        yield server
    finally:
        server.kill()
