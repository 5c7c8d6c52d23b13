"""The effect of a Python model that spins in pure Python on the tail of other models.

The server is pinned to one core and the load generator to another. The spinning process has a third core where there
is one. Where there is none it shares that of the load generator, and runs only when that waits: otherwise the figures
would show how two processes share a core. The same loop in a process of its own, outside any server, shows what the
machine alone does to the tail.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import numpy as np

from .. import machine, models, python_models
from ..figures import Bound, CaseError, Figure
from ..infer import HEADER_LENGTH, Request, ask, binary_request, check_answer, read_outputs
from ..load import Load, generator, measure
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings
from .mlp import input_row, our_request

CONNECTIONS = 16
BOUND = Bound("<=", 1.1)
HEAD_START_SECONDS = 0.2
MARGIN_SECONDS = 2.0
LOOP = "while True:\n    pass\n"
NOTES = {"quiet": "alone", "spinning": "beside a model that spins", "loop": "beside the same loop outside the server"}


def python_spin(settings: Settings) -> Iterator[Figure]:
    """p99 of a small network and of a Python model, alone, beside the spinning model and beside the plain loop."""
    repository = settings.work / "python-spin"
    models.add_mlp(repository)
    python_models.add_python_identity(repository)
    python_models.add_spinner(repository)
    identity = binary_request("python_identity", {"INPUT0": input_row()}, "OUTPUT0")
    with naiad(repository, settings.work, machine.server_core()) as server:
        check_answer(server.port, our_request(), "y", models.mlp_by_hand(input_row()))
        check_answer(server.port, identity, "OUTPUT0", input_row())
        for name, request in (("mlp", our_request()), ("identity", identity)):
            yield from _figures(f"python_spin_{name}", _compare(settings, server, request))


def _compare(settings: Settings, server: Server, request: Request) -> dict[str, list[Load]]:
    beside: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "quiet": nullcontext,
        "spinning": partial(spinning_model, server, settings.seconds + MARGIN_SECONDS),
        "loop": plain_loop,
    }

    def take(context: Callable[[], AbstractContextManager[None]]) -> Load:
        with context():
            return measure(server, request, CONNECTIONS, settings.seconds, settings.work)

    take(nullcontext)
    return alternate(settings.rounds, {name: partial(take, context) for name, context in beside.items()})


def _figures(name: str, loads: dict[str, list[Load]]) -> Iterator[Figure]:
    for beside, note in NOTES.items():
        tool = f", by {generator()}" if beside == "quiet" else ""
        yield Figure(f"{name}_{beside}_p99", median(loads[beside], _p99), "us", note=note + tool)
    ratios = {beside: median_ratio(loads[beside], loads["quiet"], _p99) for beside in ("spinning", "loop")}
    yield Figure(f"{name}_ratio", ratios["spinning"], "of alone", BOUND, f"pair by pair; the spinner {_place()}")
    yield Figure(f"{name}_loop_ratio", ratios["loop"], "of alone", note="the machine's part")
    added = median_ratio(loads["spinning"], loads["loop"], _p99)
    yield Figure(f"{name}_added", added, "of the loop", note="the server's part")


def _p99(load: Load) -> float:
    return load.p99_us


def _place() -> str:
    if not machine.can_pin():
        return "is not pinned and runs when nothing else does"
    if machine.spare_core() != machine.client_core():
        return "has a core of its own"
    return "runs on the load generator's core when that waits"


@contextmanager
def spinning_model(server: Server, seconds: float) -> Iterator[None]:
    """The model ``spinner`` runs its loop for ``seconds``, which must last for what is done meanwhile.

    Raises:
        CaseError: it was over too soon.
    """
    machine.put_behind(spin(server, 0), machine.spare_core())
    spinning = threading.Thread(target=spin, args=(server, seconds))
    spinning.start()
    try:
        time.sleep(HEAD_START_SECONDS)
        yield
        if not spinning.is_alive():
            raise CaseError(f"the model stopped spinning before the measurement was over, after {seconds:g} s")
    finally:
        spinning.join()


def spin(server: Server, seconds: float) -> int:
    """Let the model ``spinner`` spin; the number of its process."""
    status, headers, body = ask(server.port, binary_request("spinner", {"SECONDS": np.array([seconds], "f")}, "PID"))
    if status != 200:
        raise CaseError(f"the spinning model answered {status}: {body[:500].decode(errors='replace')}")
    return int(read_outputs(body, int(headers[HEADER_LENGTH.lower()]))["PID"][0])


@contextmanager
def plain_loop() -> Iterator[None]:
    """The same loop in a process that has nothing to do with the server."""
    with subprocess.Popen([sys.executable, "-c", LOOP]) as process:
        try:
            machine.put_behind(process.pid, machine.spare_core())
            time.sleep(HEAD_START_SECONDS)
            yield
        finally:
            process.kill()
