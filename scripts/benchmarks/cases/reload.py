"""A model that is loaded again and again under load, with versions in between that cannot be loaded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from .. import models
from ..closed_loop import Call, expect_status, run_calls
from ..control import EXPLICIT, load, try_load
from ..crew import Tally
from ..figures import Bound, CaseError, Figure
from ..grpc_callers import GrpcCall, run_grpc_calls
from ..grpc_request import INFER, check_infer, infer_message
from ..infer import check_answer
from ..servers import GRPC, HTTP, Server, naiad
from ..settings import Settings
from .mlp import input_row, our_request

RATE = 500
"""Requests a second over each of the two protocols."""
CONNECTIONS = 8
SECONDS, QUICK_SECONDS = 20, 3
LIMIT_SECONDS = 60
MODEL = "mlp"
_C = TypeVar("_C")


def measure(settings: Settings) -> Iterator[Figure]:
    """Requests that fail while the model is loaded anew, at about 1,000 a second over HTTP and gRPC together."""
    repository = settings.work / "reload"
    file = models.add_mlp(repository)
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    options = (EXPLICIT, f"--load-model={MODEL}")
    message = infer_message(MODEL, {"x": input_row()}, "y")
    with naiad(repository, settings.work, options=options, service=GRPC) as server, ThreadPoolExecutor(2) as threads:
        http = server.at(HTTP)
        check_answer(http.port, our_request(), "y", models.mlp_by_hand(input_row()))
        check_infer(server.port, message, "y", models.mlp_by_hand(input_row()))
        calls = paced(Call("http", our_request().wire(), expect_status(200)), seconds)
        grpc_calls = paced(GrpcCall("grpc", INFER, message), seconds)
        began = time.monotonic()
        tallies = [
            threads.submit(run_calls, http.port, calls, CONNECTIONS, LIMIT_SECONDS),
            threads.submit(run_grpc_calls, server.port, grpc_calls, CONNECTIONS, LIMIT_SECONDS),
        ]
        loads = reload_until(lambda: all(tally.done() for tally in tallies), http, file)
        taken = time.monotonic() - began
        results = [tally.result() for tally in tallies]
    yield from _figures(results, taken, f"{loads} loads, as many broken ones between them")


def _figures(tallies: list[Tally], seconds: float, what: str) -> Iterator[Figure]:
    failed = sum(tally.wrong.total() for tally in tallies)
    rate = sum(tally.right.total() for tally in tallies) / seconds
    problems = "; ".join(filter(None, (tally.summary() for tally in tallies)))
    yield Figure("reload_failed", failed, "requests", Bound("=", 0), problems or what)
    yield Figure("reload_rate", rate, "requests/s", note="answered right, over HTTP and gRPC together")
    slowest = max(max(tally.latencies) for tally in tallies)
    yield Figure("reload_slowest", slowest * 1000, "ms", note="the slowest answer, as its caller saw it")


def paced(call: _C, seconds: float) -> Iterator[_C]:
    """The same call ``RATE`` times a second."""
    began = time.perf_counter()
    for number in range(int(seconds * RATE)):
        if (ahead := began + number / RATE - time.perf_counter()) > 0:
            time.sleep(ahead)
        yield call


def reload_until(is_over: Callable[[], bool], server: Server, file: Path) -> int:
    """Load the model anew, in turns as it is and broken in three ways; how many loads of either kind.

    Raises:
        CaseError: a good version was refused, or a broken one was not.
    """
    config = file.parent.parent / "config.pbtxt"
    network, text = file.read_bytes(), config.read_text()
    breaks: tuple[Callable[[], object], ...] = (
        lambda: file.write_bytes(network[: len(network) // 2]),
        lambda: config.write_text(text + "nonsense: 1\n"),
        lambda: config.write_text(text.replace('"x"', '"z"')),
    )
    turn = 0
    while not is_over():
        breaks[turn % len(breaks)]()
        is_loaded, _ = try_load(server, MODEL)
        if is_loaded:
            raise CaseError("a version that is broken was loaded")
        turn += 1
        file.write_bytes(network)
        config.write_text(text)
        # Unlike that of the version before, whatever the clock of the files shows.
        os.utime(file, ns=(0, turn))
        load(server, MODEL)
    return turn
