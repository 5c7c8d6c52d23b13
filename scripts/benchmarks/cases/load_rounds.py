"""Whether a model of 200 MB in a process of its own gives its memory back when it is unloaded."""

from __future__ import annotations

import time
from collections.abc import Iterator

from .. import machine, python_models
from ..control import EXPLICIT, load, unload
from ..figures import Bound, Figure
from ..servers import Server, naiad
from ..settings import Settings

ROUNDS, QUICK_ROUNDS = 50, 3
FIRST_ROUNDS = 5
"""Before the comparison: what the server itself needs for the first loads stays."""
MODEL = "large"
SETTLE_SECONDS = 0.5
BOUND = Bound("<=", 2.0)


def measure(settings: Settings) -> Iterator[Figure]:
    """Resident memory of the server and its processes, before and after 50 rounds of loading and unloading."""
    repository = settings.work / "load-rounds"
    python_models.add_large(repository, MODEL)
    rounds = QUICK_ROUNDS if settings.quick else ROUNDS
    with naiad(repository, settings.work, options=(EXPLICIT,)) as server:
        go_round(server, FIRST_ROUNDS)
        before = resident_mib(server)
        load(server, MODEL)
        loaded = resident_mib(server)
        unload(server, MODEL)
        go_round(server, rounds - 1)
        after = resident_mib(server)
    yield Figure("load_rounds_loaded", loaded, "MiB", note="resident, with the model of 200 MB")
    yield Figure("load_rounds_before", before, "MiB", note=f"without it, after {FIRST_ROUNDS} rounds")
    yield Figure("load_rounds_after", after, "MiB", note=f"without it, after {rounds} more rounds")
    grown = 100 * (after - before) / before
    yield Figure("load_rounds_grown", grown, "%", None if settings.quick else BOUND, "of the memory without it")


def go_round(server: Server, times: int) -> None:
    """Load and unload the model so many times."""
    for _ in range(times):
        load(server, MODEL)
        unload(server, MODEL)


def resident_mib(server: Server) -> float:
    """Resident memory of the server and its processes."""
    time.sleep(SETTLE_SECONDS)
    return machine.resident_bytes(server.pid) / machine.MIB
