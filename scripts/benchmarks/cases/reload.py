"""A model that is loaded again and again under load, with versions in between that cannot be loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from naiad.perf.results import Window

from .. import models
from ..control import EXPLICIT, load, try_load
from ..figures import Bound, CaseError, Figure
from ..grpc_request import check_infer, infer_message
from ..infer import check_answer
from ..model_load import measure_model
from ..servers import GRPC, HTTP, Server, naiad
from ..settings import Settings
from .mlp import input_row, our_request

RATE = 500
"""Requests a second over each of the two protocols."""
SECONDS, QUICK_SECONDS = 20, 3
MODEL = "mlp"


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
        options = ("--request-rate-range", RATE, "--request-count", seconds * RATE)
        runs = [
            threads.submit(measure_model, at, MODEL, "-i", protocol, *options)
            for protocol, at in (("http", http), ("grpc", server))
        ]
        loads = reload_until(lambda: all(run.done() for run in runs), http, file)
        windows = [run.result() for run in runs]
    yield from _figures(windows, seconds, f"{loads} loads, as many broken ones between them")


def _figures(windows: list[Window], seconds: int, what: str) -> Iterator[Figure]:
    failed = sum(seconds * RATE - window.requests for window in windows)
    rate = sum(window.request_rate for window in windows)
    problems = "; ".join(f"{count} x {kind}: {cause}" for w in windows for (kind, cause), count in w.errors.items())
    yield Figure("reload_failed", failed, "requests", Bound("=", 0), problems or what)
    yield Figure("reload_rate", rate, "requests/s", note="answered right, over HTTP and gRPC together")
    slowest = max(window.latency.greatest for window in windows)
    yield Figure("reload_slowest", slowest / 1e6, "ms", note="the slowest answer, from when its request was due")


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
