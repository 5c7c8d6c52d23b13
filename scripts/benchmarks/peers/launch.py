"""One server with the network that it serves: started, asked until its answer is right, stopped with its children."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from .. import machine
from ..figures import CaseError
from ..servers import Server, stop
from ..settings import Settings
from .subjects import Subject
from .table import Peer, Place, server_cores, variables
from .wires import Wire, WireRequest

START_SECONDS = 120.0
END_SECONDS = 5.0
POLL_SECONDS = 0.05
LOG_LINES = 12


@contextmanager
def serving(settings: Settings, peer: Peer, subject: Subject, wire: Wire) -> Iterator[tuple[Server, WireRequest]]:
    """``peer`` on the cores for servers, and the request that it answered well.

    Raises:
        CaseError: it ended, or gave no right answer in time; the text carries the end of its log.
        CaseSkippedError: it cannot be installed or is not there.
    """
    folder = settings.work / f"peer-{peer.name}-{subject.name}-{wire}-{time.monotonic_ns()}"
    folder.mkdir()
    ports = (machine.free_port(), machine.free_port(), machine.free_port())
    place = Place(settings, subject, wire, folder, ports)
    request = peer.dialect(subject, wire)
    began = time.perf_counter()
    with running(peer.command(place), folder, variables(place)) as (process, log):
        _await_right_answer(process, place.port, request, subject, log)
        yield Server(peer.name, process.pid, place.port, time.perf_counter() - began), request


@contextmanager
def running(
    command: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The process of a server on the cores for servers, and the file with its log; stopped with its children.

    ``variables`` are added to the environment. The folder is its own.
    """
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _on_cores(command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment() | dict(variables),
        )
    try:
        yield process, log
    finally:
        _stop_all(process)


def await_answer(process: subprocess.Popen[bytes], log: Path, ask: Callable[[], object]) -> None:
    """Wait until ``ask`` does not raise: the server has given a right answer.

    Raises:
        CaseError: the server ended, or gave no answer in time; the text carries the end of its log.
    """
    deadline, last = time.monotonic() + START_SECONDS, "none"
    while time.monotonic() < deadline:
        if (code := process.poll()) is not None:
            raise CaseError(f"it ended with code {code}; its log ends:\n{_tail(log)}")
        try:
            ask()
        except (CaseError, OSError) as error:
            last = str(error)
            time.sleep(POLL_SECONDS)
        else:
            return
    raise CaseError(f"no right answer in {START_SECONDS:g} s; the last one: {last}; its log ends:\n{_tail(log)}")


def _environment() -> dict[str, str]:
    """That of this process without what leads Python to the packages of this one."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _on_cores(command: Sequence[str]) -> list[str]:
    if not machine.can_pin():
        return [*command]
    return ["taskset", "-c", ",".join(str(core) for core in server_cores()), *command]


def _await_right_answer(
    process: subprocess.Popen[bytes], port: int, request: WireRequest, subject: Subject, log: Path
) -> None:
    def ask() -> None:
        scores = request.ask(port)
        if scores.shape != subject.scores.shape or not np.allclose(scores, subject.scores, rtol=1e-3, atol=1e-4):
            raise CaseError(f"wrong scores: {scores.ravel()[:4]}..., expected {subject.scores[:4]}...")

    await_answer(process, log, ask)


def _stop_all(process: subprocess.Popen[bytes]) -> None:
    """A server that is ended by force leaves its workers behind."""
    try:
        descendants = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        descendants = []
    stop(process)
    _, left = psutil.wait_procs(descendants, timeout=END_SECONDS)
    for one in left:
        one.kill()
    psutil.wait_procs(left, timeout=END_SECONDS)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
