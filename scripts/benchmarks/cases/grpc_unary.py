"""The cost of one ModelInfer call over gRPC on the identity model, small and with 600 KB each way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from .. import machine, models
from ..figures import Bound, Figure
from ..grpc_request import check_infer, infer_message
from ..h2load import Fan, GrpcContender, GrpcLoad, compare_grpc
from ..infer import Array
from ..rounds import median, median_ratio
from ..servers import GRPC, Server, naiad, sketch
from ..settings import Settings

SMALL = 16
LARGE = 3 * 224 * 224
FANS = {
    SMALL: (Fan(1, 1), Fan(1, 16), Fan(16, 1), Fan(64, 1), Fan(4, 16)),
    LARGE: (Fan(1, 1), Fan(1, 16), Fan(16, 1)),
}
NAMES = {SMALL: "grpc", LARGE: "grpc_large"}
NOTES = {SMALL: "16 floats each way", LARGE: "600 KB each way"}
RATIO_BOUND = Bound(">=", 0.75)


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates and processor time at 1, 16 and 64 calls in flight, server and client on a core each."""
    core = machine.server_core()
    with ExitStack() as stack:
        repository = identity_repository(settings, "grpc")
        servers = {"ours": stack.enter_context(naiad(repository, settings.work, core, service=GRPC))}
        if script := settings.sketch("h2_server.py"):
            servers["sketch"] = stack.enter_context(sketch(script, settings.work, core))
        for elements, fans in FANS.items():
            contenders = {name: contender(server, elements) for name, server in servers.items()}
            for fan in fans:
                loads = compare_grpc(settings, contenders, fan)
                yield from figures(f"{NAMES[elements]}_{fan}", NOTES[elements], loads)


def identity_repository(settings: Settings, name: str) -> Path:
    """A repository with the model ``identity``, FP32 [-1], which takes messages of every size."""
    repository = settings.work / name
    models.add_identity(repository, "identity", [-1], max_batch_size=0)
    return repository


def values(elements: int) -> Array:
    """What a message carries."""
    return np.random.default_rng(0).random(elements, np.float32)


def contender(server: Server, elements: int) -> GrpcContender:
    """A server with its message, once a real client has got the right answer to it."""
    array = values(elements)
    message = infer_message("identity", {"INPUT0": array}, "OUTPUT0")
    return GrpcContender(server, message, check_infer(server.port, message, "OUTPUT0", array))


def figures(name: str, note: str, loads: dict[str, list[GrpcLoad]]) -> Iterator[Figure]:
    """The lines of the table for one size and one way to spread the calls."""
    ours = loads["ours"]
    yield Figure(f"{name}_rate", median(ours, rate), "calls/s", note=f"{note}, connections x streams")
    yield Figure(f"{name}_cpu", median(ours, cpu_us), "CPU us/call")
    if theirs := loads.get("sketch"):
        yield Figure(f"{name}_sketch_rate", median(theirs, rate), "calls/s", note="h2_server.py")
        yield Figure(f"{name}_sketch_cpu", median(theirs, cpu_us), "CPU us/call")
        yield Figure(f"{name}_ratio", median_ratio(ours, theirs, rate), "of the sketch", RATIO_BOUND, "pair by pair")


def rate(load: GrpcLoad) -> float:
    """The quantity whose ratio is promised."""
    return load.rate


def cpu_us(load: GrpcLoad) -> float:
    """Processor time of one call."""
    return load.cpu_us
