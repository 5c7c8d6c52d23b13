"""The tail of the small network's latencies, with client and server free on all cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from .. import models
from ..figures import Bound, Figure
from ..infer import check_answer
from ..load import Contender, Load, compare
from ..rounds import median
from ..servers import naiad, sketch
from ..settings import Settings
from .mlp import input_row, our_request, sketch_request

CONNECTIONS = (16, 64)
SKETCH_ARGUMENTS = ["turn", "mlp", "--si", "1e-4"]


def measure(settings: Settings) -> Iterator[Figure]:
    """p50 and p99 at 16 and 64 connections, nothing pinned."""
    repository = settings.work / "tail"
    model = models.add_mlp(repository)
    with ExitStack() as stack:
        ours = stack.enter_context(naiad(repository, settings.work))
        check_answer(ours.port, our_request(), "y", models.mlp_by_hand(input_row()))
        contenders = {"tail": Contender(ours, our_request())}
        if script := settings.sketch("eng.py"):
            other = stack.enter_context(sketch(script, settings.work, None, SKETCH_ARGUMENTS, model))
            contenders["tail_sketch"] = Contender(other, sketch_request())
        for connections in CONNECTIONS:
            for name, loads in compare(settings, contenders, connections, pin=False).items():
                bound = Bound("<=", 4) if name == "tail" else None
                yield from figures(f"{name}_{connections}", loads, bound)


def figures(name: str, loads: list[Load], bound: Bound | None) -> Iterator[Figure]:
    """The lines of the table for one server and one number of connections."""
    yield Figure(f"{name}_p50", median(loads, lambda load: load.p50_us), "us")
    yield Figure(f"{name}_p99", median(loads, lambda load: load.p99_us), "us")
    yield Figure(f"{name}_ratio", median(loads, lambda load: load.tail), "p99/p50", bound)
