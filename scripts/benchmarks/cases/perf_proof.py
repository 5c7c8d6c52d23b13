"""What `naiad perf` says and costs, beside the original perf_analyzer and wrk on the same server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .. import machine, models
from ..figures import Bound, Figure
from ..infer import binary_request
from ..load import generator
from ..load import measure as measure_http
from ..perf_analyzer import Question, Window, find_tool
from ..perf_pairs import OURS, THEIRS, cost_of_client, rounds, take_pairs
from ..rounds import alternate, median, median_ratio
from ..servers import GRPC, HTTP, Server, naiad
from ..settings import Settings

SMALL, LARGE = 16, 3 * 224 * 224
CONCURRENCIES = (1, 8, 16)
BUSY = (16, 64)
DELAY_MS = 5
RATE_BOUND, LATENCY_BOUND = Bound("<=", 0.05), Bound("<=", 0.10)


@contextmanager
def _served(settings: Settings, name: str, core: int | None = None) -> Iterator[Server]:
    """A server with the models ``identity``, and ``slow``, which takes 5 ms for a request."""
    repository = settings.work / name
    models.add_identity(repository, "identity", [-1], max_batch_size=0)
    models.add_identity(repository, "slow", [-1], max_batch_size=0)
    _delay(repository / "slow" / "config.pbtxt")
    with naiad(repository, settings.work, core, service=GRPC) as server:
        yield server


def _delay(config: Path) -> None:
    parameter = f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{DELAY_MS}" }} }}'
    config.write_text(f"{config.read_text()}{parameter}\n")


def pairs(settings: Settings) -> Iterator[Figure]:
    """Rate, p50 and p95 of both tools on the smallest model; nothing is pinned.

    Raises:
        CaseSkippedError: there is no perf_analyzer.
    """
    tool = find_tool(settings)
    with _served(settings, "perf-pairs") as server:
        for protocol in ("http", "grpc"):
            question = Question("identity", SMALL, protocol)
            for concurrency in CONCURRENCIES:
                taken = take_pairs(settings, tool, server, question, concurrency)
                yield from _differences(f"perf_pairs_{protocol}_{concurrency}", taken)


def delayed_pairs(settings: Settings) -> Iterator[Figure]:
    """Rate, p50 and p95 of both tools on a model that takes 5 ms, so that the server, not the client, makes the rate.

    Raises:
        CaseSkippedError: there is no perf_analyzer.
    """
    tool = find_tool(settings)
    with _served(settings, "perf-pairs-delayed") as server:
        for protocol in ("http", "grpc"):
            taken = take_pairs(settings, tool, server, Question("slow", SMALL, protocol), 1)
            yield from _differences(f"perf_pairs_{DELAY_MS}ms_{protocol}", taken)


def _differences(name: str, taken: dict[str, list[Window]]) -> Iterator[Figure]:
    ours, theirs = taken[OURS], taken[THEIRS]
    for what, unit, bound in (
        ("rate", "/s", RATE_BOUND),
        ("p50_us", "us", LATENCY_BOUND),
        ("p95_us", "us", LATENCY_BOUND),
    ):

        def of(window: Window, what: str = what) -> float:
            return float(getattr(window, what))

        ratio = median_ratio(ours, theirs, of)
        note = f"{ratio:.3f} of the original's, {median(ours, of):,.0f} and {median(theirs, of):,.0f} {unit}"
        title = f"{name}_{what.removesuffix('_us')}"
        yield Figure(title, abs(ratio - 1), "difference", bound, note)


def cpu(settings: Settings) -> Iterator[Figure]:
    """Processor time of the generator for a small request; the server and it have a core each."""
    with _served(settings, "perf-cpu", machine.server_core()) as server:
        for protocol in ("http", "grpc"):
            for concurrency in BUSY:
                costs = [
                    cost_of_client(settings, server, Question("identity", SMALL, protocol), concurrency)
                    for _ in range(settings.rounds)
                ]
                name = f"perf_cpu_{protocol}_{concurrency}"
                cpu_us = median(costs, lambda cost: cost.cpu_us)
                seen = f"{median(costs, lambda cost: cost.rate):,.0f} requests/s"
                yield Figure(name, cpu_us, "CPU us/request", Bound("<=", 25), seen)
                yield Figure(f"{name}_core", 1e6 / cpu_us, "requests/s of a core", Bound(">=", 40_000))


def latency(settings: Settings) -> Iterator[Figure]:
    """The median latency at one request in flight, beside that of wrk; the server and the load have a core each."""
    request = binary_request("identity", {"INPUT0": np.zeros(SMALL, np.float32)}, "OUTPUT0")
    question = Question("identity", SMALL, "http")
    with _served(settings, "perf-latency", machine.server_core()) as server:
        http = server.at(HTTP)
        taken = alternate(
            rounds(settings),
            {
                OURS: lambda: cost_of_client(settings, server, question, 1).p50_us,
                "wrk": lambda: measure_http(http, request, 1, settings.seconds, settings.work).p50_us,
            },
        )
    more = [ours - theirs for ours, theirs in zip(taken[OURS], taken["wrk"], strict=True)]
    note = f"{median(taken[OURS], float):.0f} us; {generator()} {median(taken['wrk'], float):.0f} us"
    yield Figure("perf_latency_more", median(more, float), "us", Bound("<=", 15), note)


def large(settings: Settings) -> Iterator[Figure]:
    """Rates with 600 KB each way; nothing is pinned.

    Raises:
        CaseSkippedError: there is no perf_analyzer.
    """
    tool = find_tool(settings)
    with _served(settings, "perf-large") as server:
        for protocol in ("http", "grpc"):
            for concurrency in (1, 8):
                taken = take_pairs(settings, tool, server, Question("identity", LARGE, protocol), concurrency)
                ratio = median_ratio(taken[OURS], taken[THEIRS], lambda window: window.rate)
                rates = (median(taken[name], lambda window: window.rate) for name in (OURS, THEIRS))
                note = "{:,.0f} and {:,.0f} requests/s".format(*rates)
                name = f"perf_large_{protocol}_{concurrency}"
                yield Figure(name, ratio, "of the original's rate", Bound(">=", 0.9), note)


def memory(settings: Settings) -> Iterator[Figure]:
    """The most memory that the generator has, with small requests and with large ones."""
    with _served(settings, "perf-memory", machine.server_core()) as server:
        for protocol in ("http", "grpc"):
            for name, values in (("small", SMALL), ("large", LARGE)):
                cost = cost_of_client(settings, server, Question("identity", values, protocol), BUSY[0])
                bound = Bound("<=", 80)
                yield Figure(f"perf_memory_{protocol}_{name}", cost.peak_bytes / 1e6, "MB", bound, "the most, RSS")
