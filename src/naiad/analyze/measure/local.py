"""A server that the analysis starts and stops: ``naiad serve``, or another one with the reference's options."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from naiad.analyze.errors import AnalyzeError
from naiad.processes.process_group import GroupedProcess

_START_S: Final = 60.0
_STOP_S: Final = 15.0
_ENDS_S: Final = 1.0
"""A process whose connections are gone has ended within this time, or goes on."""
_SERVICES: Final = ("http", "grpc", "metrics")
_HOST: Final = "127.0.0.1"
_OFF: Final = ("false", "0", "off")


class LocalServer:
    """A server process on free ports of this machine.

    Args:
        program: ``naiad``, or the path of a tritonserver.
        log_file: gets its output; None for a file that goes with it.

    Attributes:
        http, grpc, metrics: where its services listen, as ``host:port``; "" for those that the flags switch off.
    """

    def __init__(
        self,
        program: str,
        repository: Path,
        flags: Sequence[str],
        environment: Mapping[str, str],
        log_file: Path | None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="naiad-analyze-")
        self._log = log_file or Path(self._folder.name) / "server.log"
        # Ports are chosen here: the reference's server takes no 0, and flags may keep ports out of the log.
        ports = dict(zip(_SERVICES, _free_ports(len(_SERVICES)), strict=True))
        command = [
            *_program(program),
            f"--model-repository={repository}",
            "--model-control-mode=explicit",
            *(f"--http-address={_HOST}", f"--grpc-address={_HOST}"),
            *(f"--{service}-port={port}" for service, port in ports.items()),
            *flags,
        ]
        try:
            with self._log.open("wb") as log:
                # A group of its own: a Ctrl-C is for the analysis, which stops the server itself.
                self._process = GroupedProcess(
                    command, stdout=log.fileno(), stderr=log.fileno(), env={**os.environ, **environment}
                )
        except OSError as error:
            self._folder.cleanup()
            raise AnalyzeError(f"cannot start '{program}': {error.strerror or error}") from None
        off = {name for name in _SERVICES for word in _OFF if f"--allow-{name}={word}" in flags}
        self.http, self.grpc, self.metrics = ("" if n in off else f"{_HOST}:{port}" for n, port in ports.items())

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def wait_ready(self, on_wait: Callable[[float], None]) -> None:
        """Wait until it listens.

        Raises:
            AnalyzeError: it does not, or has ended.
        """
        began = time.monotonic()
        while not self._listens():
            if self._process.poll() is not None:
                raise AnalyzeError(f"the server ended with {self._process.returncode}: {_last_lines(self.log)}")
            passed = time.monotonic() - began
            if passed > _START_S:
                raise AnalyzeError(f"the server does not listen within {_START_S:g} s: {_last_lines(self.log)}")
            on_wait(passed)
            time.sleep(0.05)

    def how_it_ended(self) -> str:
        """How the server ended, and what it wrote last; "" while it runs."""
        try:
            code = self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            return ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        return f"{how}: {_last_lines(self.log)}"

    def _listens(self) -> bool:
        return all(_is_reached(address) for address in (self.http, self.grpc, self.metrics) if address)

    def stop(self) -> None:
        """End it; one that does not end in time is killed."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        # Open at the same time, so that they differ.
        sockets = [stack.enter_context(socket.create_server((_HOST, 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def _is_reached(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ENDS_S).close()
    except OSError:
        return False
    return True


def _program(program: str) -> list[str]:
    if (program in ("naiad", "tritonserver") and shutil.which(program) is None) or program == "naiad":
        # The one that runs this analysis, whatever is on the path.
        return [sys.executable, "-m", "naiad", "serve"]
    return [program]


def _last_lines(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "it wrote nothing"
