"""One run: write the models, serve them, measure, load, disturb, stop, and look at what is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from naiad.testing import RunningServer, server_environment, start_server
from naiad.worker.ipc.buffer_pool import KEEP_S
from naiad.worker.ipc.memory_release import IDLE_S

from .faults import Faults
from .outcome import Leftovers
from .record import Record
from .samples import Sample, sample, watch
from .targets import Target
from .traffic import Traffic

OPTIONS = ("--model-control-mode=explicit", "--load-model=*")
START_S = 600.0
"""Frameworks are imported, some of them in several processes."""
MEASURE_S, QUICK_MEASURE_S = 20.0, 4.0
QUICK_BELOW_S = 300.0
SETTLE_S = 10.0
KEPT_S = 2 * KEEP_S + IDLE_S + 1.0
"""After so long a server without load keeps no block of memory, and the thread that releases memory has ended."""
LOOK_S = 0.2
SHARED_MEMORY = Path("/dev/shm")
IN_FLIGHT = ("naiad_requests_in_flight ", "naiad_request_bytes_in_flight ")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run was asked for.

    Attributes:
        seconds: how long it lasts under load.
        share: of the measured rate, that is sent.
    """

    work: Path
    seconds: float
    seed: int
    share: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found; ``rates`` are the measured ones by target."""

    rates: dict[str, float]
    record: Record
    faults: Faults
    samples: list[Sample]
    left: Leftovers


def run(settings: Settings, targets: Sequence[Target]) -> Outcome:
    """Serve the targets, and load them for as long as the settings say."""
    repository, temporary = settings.work / "models", settings.work / "temporary"
    repository.mkdir()
    temporary.mkdir()
    for target in targets:
        target.write(repository)
    shared = shared_files()
    environment = server_environment() | {"TMPDIR": str(temporary)}
    server = start_server(settings.work / "server.log", "--model-repository", repository, *OPTIONS, env=environment)
    try:
        server.wait_ready(START_S)
        faults = Faults(server, repository, _models(targets), Random(settings.seed))
        rates, record, samples, quiet = asyncio.run(_load(settings, server, targets, faults))
        in_flight = _in_flight(server)
        processes = psutil.Process(server.process.pid).children(recursive=True)
        exit_code = server.stop()
        _, alive = psutil.wait_procs(processes, SETTLE_S)
    finally:
        server.kill()
    left = Leftovers(
        *quiet,
        in_flight=in_flight,
        processes=len(alive),
        shared_memory=len(shared_files() - shared),
        temporary=tuple(sorted(path.name for path in temporary.iterdir())),
        exit_code=exit_code,
        tracebacks=server.log.count("Traceback (most recent call last)"),
    )
    return Outcome(rates, record, faults, samples, left)


def _models(targets: Sequence[Target]) -> list[str]:
    return [name for target in targets for name in (target.name, *target.members)]


async def _load(
    settings: Settings, server: RunningServer, targets: Sequence[Target], faults: Faults
) -> tuple[dict[str, float], Record, list[Sample], tuple[Sample, Sample]]:
    """Measure the most, then load with a part of it."""
    measure_s = QUICK_MEASURE_S if settings.seconds < QUICK_BELOW_S else MEASURE_S
    async with Traffic(server, targets, settings.seed) as traffic:
        await asyncio.sleep(measure_s)
        rates = {name: h.count / measure_s for name, h in traffic.record.by_target.items()}
    _check_measured(traffic.record, targets)
    before = await _quiet(server.process.pid)
    samples: list[Sample] = []
    sent = {name: rate * settings.share for name, rate in rates.items()}
    async with Traffic(server, targets, settings.seed + 1, sent) as traffic:
        watching = watch(server.process.pid, settings.seconds, samples)
        await asyncio.gather(faults.run(settings.seconds), watching)
    return rates, traffic.record, samples, (before, await _quiet(server.process.pid))


def _check_measured(record: Record, targets: Sequence[Target]) -> None:
    if record.failures:
        raise RuntimeError(f"requests failed before any fault: {record.failures[0]}")
    if silent := [target.name for target in targets if target.name not in record.by_target]:
        raise RuntimeError(f"no request was answered by {', '.join(silent)}")


async def _quiet(pid: int) -> Sample:
    """The server without load, once two looks a while apart find the same descriptors and threads.

    The first of them comes when it has let go of what it keeps for a while, in the thread that does so.
    """
    await asyncio.sleep(KEPT_S)
    end_s = time.monotonic() + SETTLE_S
    last = sample(pid)
    while True:
        await asyncio.sleep(SETTLE_S / 10)
        found = sample(pid)
        if (found.descriptors, found.threads) == (last.descriptors, last.threads) or time.monotonic() > end_s:
            return found
        last = found


def _in_flight(server: RunningServer) -> float:
    """Requests and bytes in flight, as the server's metrics have them."""
    lines = server.metrics_page().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(IN_FLIGHT))


def shared_files() -> set[str]:
    """What servers have left in the system's folder for shared memory; other programs use it too."""
    names = os.listdir(SHARED_MEMORY) if SHARED_MEMORY.exists() else []
    return {name for name in names if name.startswith("naiad")}


def keep_log(settings: Settings, target: Path) -> None:
    """Copy the log of the server to where it outlives the run."""
    shutil.copyfile(settings.work / "server.log", target)
