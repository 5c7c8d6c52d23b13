"""The cost of one request to a small network through the dynamic batcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from .. import machine, models
from ..figures import Bound, Figure
from ..infer import Array, Request, binary_request, check_answer
from ..load import Contender, Load, compare, generator
from ..rounds import median, median_ratio
from ..servers import naiad, sketch
from ..settings import Settings

CONNECTIONS = 64


def input_row() -> Array:
    """The one row that every request of the small network carries: FP32 [1, 16]."""
    return np.random.default_rng(0).random((1, 16), np.float32)


def our_request() -> Request:
    """The request as our model names its tensors."""
    return binary_request("mlp", {"x": input_row()}, "y")


def sketch_request() -> Request:
    """The same request as the sketch names its tensors."""
    return binary_request("mlp", {"INPUT0": input_row()}, "OUTPUT0")


def rate(load: Load) -> float:
    """The quantity whose ratio is promised."""
    return load.rate


def measure(settings: Settings) -> Iterator[Figure]:
    """Rate and processor time per request at 64 connections, server and client on a core each."""
    repository = settings.work / "mlp"
    model = models.add_mlp(repository)
    core = machine.server_core()
    with ExitStack() as stack:
        ours = stack.enter_context(naiad(repository, settings.work, core))
        check_answer(ours.port, our_request(), "y", models.mlp_by_hand(input_row()))
        contenders = {"ours": Contender(ours, our_request())}
        if script := settings.sketch("eng.py"):
            other = stack.enter_context(sketch(script, settings.work, core, ["turn", "mlp"], model))
            check_answer(other.port, sketch_request(), "OUTPUT0", models.mlp_by_hand(input_row()))
            contenders["sketch"] = Contender(other, sketch_request())
        loads = compare(settings, contenders, CONNECTIONS)
    yield from figures(loads)


def figures(loads: dict[str, list[Load]]) -> Iterator[Figure]:
    """The lines of the table."""
    ours = loads["ours"]
    yield Figure("mlp_rate", median(ours, rate), "requests/s", note=f"{CONNECTIONS} connections, by {generator()}")
    yield Figure("mlp_cpu", median(ours, lambda load: load.cpu_us), "CPU us/request", note="whole process tree")
    if theirs := loads.get("sketch"):
        yield Figure("mlp_sketch_rate", median(theirs, rate), "requests/s", note="eng.py turn mlp")
        yield Figure("mlp_sketch_cpu", median(theirs, lambda load: load.cpu_us), "CPU us/request")
        yield Figure("mlp_ratio", median_ratio(ours, theirs, rate), "of the sketch", Bound(">=", 0.75), "pair by pair")
