"""The effect of a program that computes on the server's core on the tail of small requests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from .. import machine, models
from ..figures import Bound, Figure
from ..infer import binary_request, check_answer
from ..load import Load, measure_paced
from ..rounds import alternate, median
from ..servers import naiad
from ..settings import Settings
from .json_beside import DIMS
from .mlp import input_row
from .python_spin import LOOP

BOUND = Bound("<=", 2.0)
"""A time slice of the system's scheduler is 1.4 ms or more, and ends at one of its ticks: each 4 ms, say."""


def program_beside(settings: Settings) -> Iterator[Figure]:
    """p99 of a small request each millisecond alone, and while a program computes on the server's core all the time."""
    repository = settings.work / "program-beside"
    models.add_identity(repository, "identity", DIMS, max_batch_size=8)
    small = binary_request("identity", {"INPUT0": input_row()}, "OUTPUT0")
    with naiad(repository, settings.work, machine.server_core()) as server:
        check_answer(server.port, small, "OUTPUT0", input_row())
        contexts: dict[str, Callable[[], AbstractContextManager[None]]] = {"quiet": nullcontext, "beside": computing}

        def take(context: Callable[[], AbstractContextManager[None]]) -> Load:
            with context():
                return measure_paced(server, small, settings.seconds, settings.work)

        take(nullcontext)
        loads = alternate(settings.rounds, {name: partial(take, context) for name, context in contexts.items()})
    p99 = {name: median(found, lambda load: load.p99_us) for name, found in loads.items()}
    yield Figure("program_beside_quiet_p99", p99["quiet"], "us", note="alone, a request each millisecond")
    yield Figure("program_beside_p99", p99["beside"], "us", note="beside a program that computes on the server's core")
    yield Figure(
        "program_beside_moved", (p99["beside"] - p99["quiet"]) / 1000, "ms", BOUND, "of p99; Linux 6.12 or newer"
    )


@contextmanager
def computing() -> Iterator[None]:
    """A program computes on the server's core meanwhile."""
    with subprocess.Popen(machine.on_core([sys.executable, "-c", LOOP], machine.server_core())) as process:
        try:
            yield
        finally:
            process.kill()
