"""The effect of many callers with large tensors on the tail of the small requests to another model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .. import models, python_models
from ..figures import CaseError, Figure
from ..infer import Request, binary_request, check_answer
from ..load import Load, generator, measure
from ..rounds import alternate, median
from ..servers import Server, naiad
from ..settings import Settings
from . import framework_process
from .mlp import input_row

VALUES, QUICK_VALUES = 1 << 20, 1 << 16
CALLERS = 64
SETTLE_SECONDS = 2


def measure_beside(settings: Settings) -> Iterator[Figure]:
    """p99 of small requests alone, and while others send 4 MB to a network in a process and to a Python model."""
    repository = settings.work / "large-beside"
    models.add_identity(repository, "small", [-1], max_batch_size=8)
    framework_process.add_network(repository)
    python_models.add_python_identity(repository, "python")
    small = binary_request("small", {"INPUT0": input_row()}, "OUTPUT0")
    tensor = np.ones((1, QUICK_VALUES if settings.quick else VALUES), np.float32)
    with naiad(repository, settings.work) as server:
        check_answer(server.port, small, "OUTPUT0", input_row())
        for name, model in (("process", framework_process.MODEL), ("python", "python")):
            yield from _beside(settings, server, small, name, binary_request(model, {"INPUT0": tensor}, "OUTPUT0"))


def _beside(settings: Settings, server: Server, small: Request, name: str, large: Request) -> Iterator[Figure]:
    rates: list[float] = []

    def take(seconds: int) -> float:
        # One after the other: more would take the processors from the large ones.
        return measure(server, small, 1, seconds, settings.work, pin=False).p99_us

    def alone() -> float:
        # First the server ends what the callers of the last round have left behind.
        take(SETTLE_SECONDS)
        return take(settings.seconds)

    def beside() -> float:
        with sending(settings, server, large, rates):
            return take(settings.seconds)

    beside()
    found = alternate(settings.rounds, {"alone": alone, "beside": beside})
    p99 = {when: median(taken, float) for when, taken in found.items()}
    size = len(large.body) / 1e6
    yield Figure(f"large_beside_{name}_alone_p99", p99["alone"], "us", note=f"one connection, by {generator()}")
    yield Figure(f"large_beside_{name}_p99", p99["beside"], "us", note=f"beside {CALLERS} callers of {size:.1f} MB")
    yield Figure(f"large_beside_{name}_rate", rates[-1], "requests/s", note="of the large ones")


@contextmanager
def sending(settings: Settings, server: Server, large: Request, rates: list[float]) -> Iterator[None]:
    """Send large requests during the block, and as long as they take from then on; ``rates`` gets their rate.

    Raises:
        CaseError: they were not answered.
    """
    found: list[Load | CaseError] = []

    def send() -> None:
        try:
            found.append(measure(server, large, CALLERS, settings.seconds + 1, settings.work, pin=False))
        except CaseError as error:
            found.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()
    (result,) = found
    if isinstance(result, CaseError):
        raise result
    rates.append(result.rate)
