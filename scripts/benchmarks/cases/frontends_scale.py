"""How the rate of small requests grows with the number of front-end processes, on a machine with many cores."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np

from .. import h2load, machine, models, parallel
from ..figures import Bound, CaseSkippedError, Figure
from ..infer import Request, binary_request, check_answer
from ..load import Load
from ..load import measure as measure_load
from ..servers import Server, await_replicas, naiad
from ..settings import Settings
from .mlp import rate

LEAST_CORES = 8
COUNTS = (1, 2, 4, 8, 10, 11, 12)
SPREADS = ((2, 32), (4, 64), (5, 160), (6, 320))
"""Threads and connections of the load generator. Each number of front ends has the best of them."""
WANTED = Bound(">=", 10.0)
WANTED_CORES = 16
RATE_OF_THREAD = 80_000
"""Requests per second that a thread of h2load sends without being late itself."""
CONNECTIONS_OF_THREAD = 32


def measure(settings: Settings) -> Iterator[Figure]:
    """Rate and processor time of 16 floats through ``identity`` for each number of front ends, and the 99th percentile
    at half the highest rate of one process and of the best number."""
    cores = len(machine.cores())
    if cores < LEAST_CORES:
        raise CaseSkippedError(f"it needs {LEAST_CORES} cores, this machine has {cores}")
    for program in ("wrk", "h2load"):
        if not shutil.which(program):
            raise CaseSkippedError(f"{program} is not installed (apt-get install wrk nghttp2-client)")
    repository = settings.work / "frontends-scale"
    models.add_identity(repository, "identity", [16], max_batch_size=0, count=cores)
    row = np.arange(16, dtype=np.float32)
    request = binary_request("identity", {"INPUT0": row}, "OUTPUT0")
    found: dict[int, Load] = {}
    generator_us: dict[int, float] = {}
    tails: dict[int, tuple[float, float]] = {}
    for count in (count for count in COUNTS if count < cores):
        with naiad(repository, settings.work, None, ["--frontend-processes", str(count)]) as server:
            if count > 1:
                await_replicas(server, count)
            check_answer(server.port, request, "OUTPUT0", row)
            found[count], generator_us[count] = best(settings, server, request)
            tails[count] = half_load(settings, server, request, found[count].rate)
    one = found[1]
    for count, load in found.items():
        note = f"p99 {load.p99_us / 1000:.2f} ms, {load.cpu_us * load.rate / 1e6:.1f} cores busy"
        yield Figure(f"frontends_scale_{count}_rate", load.rate, "requests/s", note=note)
        yield Figure(f"frontends_scale_{count}_cpu", load.cpu_us, "CPU us/request")
        yield Figure(f"frontends_scale_{count}_wrk_cpu", generator_us[count], "CPU us/request", note="of wrk")
        yield Figure(f"frontends_scale_{count}_p99", tails[count][0], "ms", note=f"at {tails[count][1]:.0f}/s")
    yield Figure(
        "frontends_scale_machine",
        parallel.speedup(cores, settings.seconds),
        "of one process",
        note=f"what {cores} processes calculate that share nothing",
    )
    yield Figure(
        "frontends_scale_most",
        cores * one.cpu_us / (one.cpu_us + generator_us[1]),
        "of one process",
        note=f"if a request cost no more on {cores} busy cores, of which wrk takes its part",
    )
    most = max(found, key=lambda count: rate(found[count]))
    on = f"{most} front ends, on {cores} cores"
    bound = WANTED if cores >= WANTED_CORES else None
    yield Figure("frontends_scale_ratio", found[most].rate / one.rate, "of one process", bound, on)
    calm = Bound("<=", 1.0) if cores >= WANTED_CORES else None
    yield Figure(
        "frontends_scale_p99_ratio", tails[most][0] / tails[1][0], "of one process", calm, f"at half load; {on}"
    )


def best(settings: Settings, server: Server, request: Request) -> tuple[Load, float]:
    """The highest rate of a server, and the processor time that the load generator took then, in us/request."""
    loads = []
    for threads, connections in SPREADS:
        for seconds in (1, settings.seconds):
            before = machine.finished_children_s()
            load = measure_load(server, request, connections, seconds, settings.work, pin=False, threads=threads)
            used_us = (machine.finished_children_s() - before) * 1e6 / load.requests
        loads.append((load, used_us))
    return max(loads, key=lambda found: rate(found[0]))


def half_load(settings: Settings, server: Server, request: Request, most: float) -> tuple[float, float]:
    """The 99th percentile in ms at half of the highest rate, and the rate that the load generator reached."""
    threads = 1 + int(most / 2 / RATE_OF_THREAD)
    fan = h2load.Fan(CONNECTIONS_OF_THREAD * threads, 1)
    return h2load.tail_at(server, request, most / 2, fan, threads, min(2, settings.seconds), settings.work)
