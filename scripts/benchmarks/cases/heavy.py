"""A heavy network (resnet50): how much of the framework's own speed is left when it is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from .. import machine, models
from ..closed_loop import rate_of
from ..direct import call_directly
from ..figures import Bound, Figure
from ..infer import Array, Request, binary_request, check_answer
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings

CALLERS = (1, 2)
WARM_UP_CALLS = 3
MINIMUM_CALLS = 10
LIMIT_SECONDS = 120.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates of one and two callers against a plain loop with as many threads, for one thread and for all cores."""
    pixels = np.random.default_rng(0).random(models.RESNET_INPUT, np.float32)
    for threads in sorted({1, len(machine.cores())}):
        repository = settings.work / f"heavy-{threads}"
        file, image, scores = models.add_resnet(repository, "resnet50", threads)
        request = binary_request("resnet50", {image: pixels}, scores)
        with naiad(repository, settings.work) as server:
            check_answer(server.port, request, scores, call_once(file, pixels))
            rates = alternate(settings.rounds, measures(settings, server, request, file, threads))
        yield from figures(threads, rates)


def call_once(file: Path, pixels: Array) -> Array:
    """The outputs of onnxruntime itself."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    answer: Array = session.run(None, {session.get_inputs()[0].name: pixels})[0]
    return answer


def measures(
    settings: Settings, server: Server, request: Request, file: Path, threads: int
) -> dict[str, Callable[[], float]]:
    """What is taken in every round: the plain loop, then each number of callers with as many calls."""
    wire = request.wire()
    rate_of(server.port, wire, 1, WARM_UP_CALLS, LIMIT_SECONDS)

    def direct() -> float:
        return call_directly("onnx", file, threads, settings.seconds)["rate"]

    expected_rate = direct()
    requests = max(MINIMUM_CALLS, round(expected_rate * settings.seconds))

    def served(callers: int) -> float:
        return rate_of(server.port, wire, callers, requests, LIMIT_SECONDS)

    return {"direct": direct} | {f"served_{callers}": partial(served, callers) for callers in CALLERS}


def figures(threads: int, rates: dict[str, list[float]]) -> Iterator[Figure]:
    """The lines of the table for one number of threads."""
    name = f"heavy_{threads}t"
    yield Figure(
        f"{name}_direct", median(rates["direct"], float), "calls/s", note=f"onnxruntime in a loop, threads: {threads}"
    )
    for callers in CALLERS:
        ours = rates[f"served_{callers}"]
        ratio = median_ratio(ours, rates["direct"], float)
        yield Figure(f"{name}_{callers}", median(ours, float), "requests/s", note=f"callers: {callers}")
        yield Figure(f"{name}_{callers}_ratio", ratio, "of direct", Bound(">=", 0.95), "pair by pair")
