"""How the rate of small requests grows with the number of front-end processes, on a machine with many cores."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np

from .. import machine, models
from ..figures import Bound, CaseSkippedError, Figure
from ..infer import binary_request, check_answer
from ..load import Load
from ..load import measure as measure_load
from ..servers import naiad
from ..settings import Settings
from .mlp import rate

LEAST_CORES = 8
COUNTS = (1, 2, 4, 8, 14)
SPREADS = ((2, 32), (4, 64), (6, 192))
"""Threads and connections of the load generator. Each number of front ends has the best of them."""
WANTED = Bound(">=", 10.0)
WANTED_CORES = 16


def measure(settings: Settings) -> Iterator[Figure]:
    """Rate and processor time of 16 floats through ``identity`` for each number of front ends."""
    cores = len(machine.cores())
    if cores < LEAST_CORES:
        raise CaseSkippedError(f"it needs {LEAST_CORES} cores, this machine has {cores}")
    if not shutil.which("wrk"):
        raise CaseSkippedError("wrk is not installed (apt-get install wrk)")
    found = {count: best(settings, count) for count in COUNTS if count < cores}
    for count, load in found.items():
        note = f"p99 {load.p99_us / 1000:.2f} ms, {load.cpu_us * load.rate / 1e6:.1f} cores busy"
        yield Figure(f"frontends_scale_{count}_rate", load.rate, "requests/s", note=note)
        yield Figure(f"frontends_scale_{count}_cpu", load.cpu_us, "CPU us/request")
    ratio = max(map(rate, found.values())) / found[1].rate
    bound = WANTED if cores >= WANTED_CORES else None
    yield Figure("frontends_scale_ratio", ratio, "of one process", bound, f"the best, on {cores} cores")


def best(settings: Settings, count: int) -> Load:
    """The highest rate with so many front ends."""
    repository = settings.work / f"frontends-scale-{count}"
    models.add_identity(repository, "identity", [16], max_batch_size=0)
    row = np.arange(16, dtype=np.float32)
    request = binary_request("identity", {"INPUT0": row}, "OUTPUT0")
    with naiad(repository, settings.work, None, ["--frontend-processes", str(count)]) as server:
        check_answer(server.port, request, "OUTPUT0", row)
        loads = []
        for threads, connections in SPREADS:
            for seconds in (1, settings.seconds):
                load = measure_load(server, request, connections, seconds, settings.work, pin=False, threads=threads)
            loads.append(load)
    return max(loads, key=rate)
