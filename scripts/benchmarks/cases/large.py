"""The cost of moving an image through the server: 600 KB in and 600 KB out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from .. import machine, models
from ..figures import Bound, Figure
from ..infer import binary_request, check_answer
from ..load import Contender, Load, compare
from ..rounds import median, median_ratio
from ..servers import naiad, sketch
from ..settings import Settings

DIMS = (3, 224, 224)
CONNECTIONS = (1, 16)


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates at 1 and 16 connections, server and client on a core each."""
    repository = settings.work / "large"
    models.add_identity(repository, "identity", DIMS, max_batch_size=8)
    image = np.random.default_rng(0).random((1, *DIMS), np.float32)
    request = binary_request("identity", {"INPUT0": image}, "OUTPUT0")
    core = machine.server_core()
    with ExitStack() as stack:
        contenders = {"ours": Contender(stack.enter_context(naiad(repository, settings.work, core)), request)}
        if script := settings.sketch("http_buffered.py"):
            contenders["sketch"] = Contender(stack.enter_context(sketch(script, settings.work, core)), request)
        for contender in contenders.values():
            check_answer(contender.server.port, request, "OUTPUT0", image)
        for connections in CONNECTIONS:
            yield from figures(connections, compare(settings, contenders, connections))


def figures(connections: int, loads: dict[str, list[Load]]) -> Iterator[Figure]:
    """The lines of the table for one number of connections."""
    ours, name = loads["ours"], f"large_{connections}"
    yield Figure(f"{name}_rate", median(ours, _rate), "requests/s", note=f"600 KB each way, connections: {connections}")
    yield Figure(f"{name}_cpu", median(ours, lambda load: load.cpu_us), "CPU us/request")
    if theirs := loads.get("sketch"):
        yield Figure(f"{name}_sketch_rate", median(theirs, _rate), "requests/s", note="http_buffered.py")
        yield Figure(
            f"{name}_ratio", median_ratio(ours, theirs, _rate), "of the sketch", Bound(">=", 0.8), "pair by pair"
        )


def _rate(load: Load) -> float:
    return load.rate
