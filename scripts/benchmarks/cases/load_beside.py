"""What the tail of one model's requests has of another model that is loaded meanwhile, of 1 GB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from .. import machine, models
from ..control import EXPLICIT, load, unload
from ..figures import Bound, CaseError, Figure
from ..infer import check_answer
from ..load import measure as measure_load
from ..rounds import alternate, median
from ..servers import Server, naiad
from ..settings import Settings
from .mlp import input_row, our_request

CONNECTIONS = 4
ROWS, QUICK_ROWS = 1 << 24, 1 << 20
"""Of 64 bytes each."""
BOUND = Bound("<", 1.10)
WAYS = ("thread", "process")


def measure(settings: Settings) -> Iterator[Figure]:
    """p99 of the small network alone, and while a model with a table of 1 GB is loaded and unloaded all the time."""
    repository = settings.work / "load-beside"
    models.add_mlp(repository)
    rows = QUICK_ROWS if settings.quick else ROWS
    file = None
    for way in WAYS:
        execution = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}'
        file = models.add_table(repository, f"large_{way}", rows, execution, like=file)
    options = (EXPLICIT, "--load-model=mlp")
    with naiad(repository, settings.work, options=options) as server:
        check_answer(server.port, our_request(), "y", models.mlp_by_hand(input_row()))
        for way in WAYS:
            yield from _beside(settings, server, way, rows * 64 / machine.MIB)


def _beside(settings: Settings, server: Server, way: str, size_mib: float) -> Iterator[Figure]:
    loads: list[int] = []

    def take(is_loading: bool) -> float:
        with loading(server, f"large_{way}", loads) if is_loading else nullcontext():
            return measure_load(server, our_request(), CONNECTIONS, settings.seconds, settings.work, pin=False).p99_us

    take(False)
    found = alternate(settings.rounds, {"alone": lambda: take(False), "beside": lambda: take(True)})
    alone, beside = (median(found[name], float) for name in ("alone", "beside"))
    yield Figure(f"load_beside_{way}_alone_p99", alone, "us", note=f"connections: {CONNECTIONS}")
    yield Figure(
        f"load_beside_{way}_p99", beside, "us", note=f"while {size_mib:.0f} MiB are loaded, {sum(loads)} times"
    )
    yield Figure(f"load_beside_{way}_ratio", beside / alone, "times", BOUND, f"of p99, execution={way}")


@contextmanager
def loading(server: Server, model: str, loads: list[int]) -> Iterator[None]:
    """Load and unload a model all the time; ``loads`` gets how often.

    Raises:
        CaseError: a load failed, or none was over.
    """
    stop = threading.Event()
    problems: list[CaseError] = []
    count = 0

    def work() -> None:
        nonlocal count
        try:
            while not stop.is_set():
                load(server, model)
                unload(server, model)
                count += 1
        except CaseError as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if problems:
        raise problems[0]
    loads.append(count)
