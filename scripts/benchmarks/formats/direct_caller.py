"""The other side of ``child``: start it, ask it and end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import machine
from ..figures import CaseError
from ..servers import SCRIPTS, stop
from .form import Array, Format, Speed

MODULE = "benchmarks.formats.child"
WRITE_SECONDS = 300
SHOWN_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class DirectCaller:
    """A process in which a framework runs a network without a server.

    Attributes:
        load_seconds: from before the import of the framework until the network was loaded.
        start_seconds: the same from the start of the process.
        first_seconds: of the first call.
        answer: of the first call.
    """

    process: subprocess.Popen[str]
    log: Path
    load_seconds: float
    start_seconds: float
    first_seconds: float
    answer: Array

    def call(self, seconds: float) -> Speed:
        """Call in a loop, after a warm-up."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        found = _line(self.process, self.log)
        return Speed(found["rate"], found["median_us"], found["p95_us"])

    def resident_bytes(self) -> int:
        """Its memory now."""
        return machine.resident_bytes(self.process.pid)


@contextmanager
def called_directly(form: Format, network: str, path: Path, threads: int, work: Path) -> Iterator[DirectCaller]:
    """A process that has loaded a network and called it once.

    Raises:
        CaseError: it failed; the text has the end of what it printed.
    """
    log = work / f"direct-{time.monotonic_ns()}.log"
    answer = log.with_suffix(".npy")
    began = time.perf_counter()
    command = [sys.executable, "-m", MODULE, "call", form.name, network, str(path), str(threads), str(answer)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment()
        ) as process,
    ):
        try:
            first = _line(process, log)
            start_seconds = time.perf_counter() - began - first["first_s"]
            yield DirectCaller(process, log, first["load_s"], start_seconds, first["first_s"], np.load(answer))
        finally:
            stop(process)


def write_files(orders: Sequence[tuple[Format, str, Path]]) -> None:
    """Write networks in one process.

    Raises:
        CaseError: a framework refused; the text has the end of what it printed.
    """
    texts = [f"{form.name}:{network}:{path}" for form, network, path in orders]
    finished = subprocess.run(
        [sys.executable, "-m", MODULE, "write", *texts],
        capture_output=True,
        text=True,
        check=False,
        timeout=WRITE_SECONDS,
        env=_environment(),
    )
    if finished.returncode:
        raise CaseError(f"writing {', '.join(texts)} failed: {finished.stderr[-SHOWN_CHARACTERS:]}")


def _environment() -> dict[str, str]:
    given = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(SCRIPTS), *((given,) if given else ())))}


def _line(process: subprocess.Popen[str], log: Path) -> dict[str, float]:
    """The next line of JSON. Frameworks may print lines of their own."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, float] = json.loads(line)
            return found
    raise CaseError(f"calling a framework directly failed: {log.read_text(errors='replace')[-SHOWN_CHARACTERS:]}")
