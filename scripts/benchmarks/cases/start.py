"""The time until the server is ready, its memory, and the time to import its package."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from .. import machine
from ..figures import Bound, Figure
from ..rounds import alternate, median
from ..servers import naiad
from ..settings import Settings

IDLE_SECONDS = 1.0
IMPORTS_PER_ROUND = 3


def start_ready(settings: Settings) -> Iterator[Figure]:
    """From exec to the first 200 of /v2/health/ready, with an empty repository."""
    repository = settings.work / "empty"
    repository.mkdir(exist_ok=True)

    def start() -> float:
        with naiad(repository, settings.work) as server:
            return server.ready_seconds

    start()  # After this there is bytecode, as pip leaves it.
    seconds = alternate(settings.rounds, {"start": start})["start"]
    yield Figure("start_ready", median(seconds, float), "s", Bound("<", 0.5), "no model")


def idle_memory(settings: Settings) -> Iterator[Figure]:
    """Resident memory with an empty repository."""
    repository = settings.work / "empty"
    repository.mkdir(exist_ok=True)
    with naiad(repository, settings.work) as server:
        time.sleep(IDLE_SECONDS)
        resident = machine.resident_bytes(server.pid)
    yield Figure("idle_memory", resident / machine.MIB, "MiB", Bound("<", 80), "no model, whole process tree")


def import_time(settings: Settings) -> Iterator[Figure]:
    """``import naiad`` beyond what starting Python takes."""
    measures = {"with": lambda: _run_python("import naiad"), "without": lambda: _run_python("pass")}
    times = alternate(settings.rounds * IMPORTS_PER_ROUND, measures)
    extra = median(times["with"], float) - median(times["without"], float)
    yield Figure("import_time", extra * 1e3, "ms", Bound("<", 150), "beyond starting Python")


def _run_python(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began
