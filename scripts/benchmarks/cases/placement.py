"""Two models that compute all the time, each on a core of its own by its host policy, and both on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from .. import machine, models
from ..figures import Bound, CaseSkippedError, Figure
from ..infer import Array, Request, binary_request, check_answer
from ..load import Load
from ..load import measure as measure_load
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings

ROWS = 128
UNITS = 1024
NAMES = ("first", "second")
WAYS = ("pinned", "unpinned")


def measure(settings: Settings) -> Iterator[Figure]:
    """p99 of each model with one caller, alone and while the other one has a caller too, in turns."""
    if len(machine.cores()) < len(NAMES):
        raise CaseSkippedError("it takes two cores")
    with ExitStack() as stack:
        measures: dict[str, Callable[[], Sequence[Load]]] = {}
        for way in WAYS:
            server = stack.enter_context(naiad(repository(settings, way), settings.work, options=policies(way)))
            requests = [checked(server, name) for name in NAMES]
            take(settings, server, requests)
            for name, request in zip(NAMES, requests, strict=True):
                measures[f"{way}_{name}"] = partial(take, settings, server, [request])
            measures[f"{way}_beside"] = partial(take, settings, server, requests)
        found = alternate(settings.rounds, measures)
    for way in WAYS:
        for place, name in enumerate(NAMES):
            alone = [loads[0] for loads in found[f"{way}_{name}"]]
            yield from figures(way, name, alone, [loads[place] for loads in found[f"{way}_beside"]])
        yield Figure(
            f"placement_{way}_rate", median(found[f"{way}_beside"], rate), "requests/s", note="of both together"
        )


def policies(way: str) -> list[str]:
    """The options of the server: a core for each model and the others for the event loop, or none for any."""
    if way != "pinned":
        return []
    cores, others = machine.cores()[: len(NAMES)], spare_cores()
    chosen = [f"--host-policy={name},cpu-cores={core}" for name, core in zip(NAMES, cores, strict=True)]
    return [*chosen, f"--host-policy=frontend,cpu-cores={','.join(map(str, others))}"] if others else chosen


def spare_cores() -> list[int]:
    """The cores that no model is pinned to."""
    return machine.cores()[len(NAMES) :]


def take(settings: Settings, server: Server, requests: Sequence[Request]) -> list[Load]:
    """The loads of one caller for each request, all at the same time; nothing but the models is pinned."""
    with ThreadPoolExecutor(len(requests)) as callers:
        loads = [
            callers.submit(measure_load, server, request, 1, settings.seconds, settings.work, pin=False)
            for request in requests
        ]
        return [load.result() for load in loads]


def figures(way: str, name: str, alone: list[Load], beside: list[Load]) -> Iterator[Figure]:
    """The lines of the table for one model."""
    name = f"placement_{way}_{name}"
    yield Figure(f"{name}_alone_p99", median(alone, p99_us) / 1e3, "ms")
    yield Figure(f"{name}_beside_p99", median(beside, p99_us) / 1e3, "ms", note="while the other one has a caller")
    # On two cores event loop and load generators run on those of the models.
    bound = Bound("<=", 1.1) if way == "pinned" and spare_cores() else None
    note = "pair by pair" if spare_cores() else "pair by pair; event loop and load generators share both cores"
    yield Figure(f"{name}_ratio", median_ratio(beside, alone, p99_us), "of alone", bound, note)


def p99_us(load: Load) -> float:
    """The 99th percentile, in microseconds."""
    return load.p99_us


def rate(loads: Sequence[Load]) -> float:
    """Answers a second of all."""
    return sum(load.rate for load in loads)


def weights() -> dict[str, Array]:
    """Those of a network of some ten megabytes, whose run takes about ten milliseconds: what else a request costs, on
    two cores beside the models, is little of that."""
    random = np.random.default_rng(5)
    shapes = {"w1": (16, UNITS), "w2": (UNITS, UNITS), "w3": (UNITS, UNITS), "w4": (UNITS, 16)}
    return {
        name: (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for name, shape in shapes.items()
    }


def repository(settings: Settings, way: str) -> Path:
    """Both models, with the policies of their names where they are pinned."""
    folder = settings.work / f"placement-{way}"
    nodes = [
        ("MatMul", ["x", "w1"], "a"),
        ("MatMul", ["a", "w2"], "b"),
        ("MatMul", ["b", "w3"], "c"),
        ("MatMul", ["c", "w4"], "y"),
    ]
    for name in NAMES:
        policy = f'host_policy: "{name}"' if way == "pinned" else ""
        version = models.add_model(
            folder,
            name,
            'platform: "onnxruntime_onnx"',
            "max_batch_size: 0",
            models.tensor_field("input", "x", "TYPE_FP32", [-1, 16]),
            models.tensor_field("output", "y", "TYPE_FP32", [-1, 16]),
            f"instance_group [ {{ kind: KIND_CPU count: 1 {policy} }} ]",
        )
        models.save_graph(version / "model.onnx", [("x", "FLOAT", ["rows", 16])], nodes, weights(), "y")
    return folder


def checked(server: Server, name: str) -> Request:
    """The request for a model, which was answered rightly once."""
    x = np.random.default_rng(6).random((ROWS, 16), np.float32)
    expected = x
    for weight in weights().values():
        expected = expected @ weight
    request = binary_request(name, {"x": x}, "y")
    check_answer(server.port, request, "y", expected)
    return request
