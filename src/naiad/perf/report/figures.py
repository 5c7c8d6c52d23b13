"""Figures that the text, the tables and the charts share: averages of a request, numbers as C++ streams print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from naiad.perf.results import LevelResult, LoadLevel, LoadMode, ServerParts, Window

STANDARD_PERCENTILES: Final = (50, 90, 95, 99)
RATE_MODES: Final = (LoadMode.REQUEST_RATE, LoadMode.CUSTOM_INTERVALS, LoadMode.FIXED_SCHEDULE)


def six_digits(number: float) -> str:
    """A number with six significant digits, as C++ streams print it: ``4141.76``, ``118``, ``62.6``, ``1.2e+06``."""
    return f"{number:.6g}"


def whole_us(duration_ns: float) -> int:
    """Whole microseconds; the reference cuts the rest off."""
    return int(duration_ns / 1000)


def reported_percentiles(percentile: int | None) -> list[int]:
    """The percentiles of every report, with the one that was asked for."""
    return sorted({*STANDARD_PERCENTILES, *(() if percentile is None else (percentile,))})


def stabilizing_ns(window: Window, percentile: int | None) -> float:
    """The latency that decides about stability and stands in the closing list: the average or a percentile."""
    return window.latency.mean if percentile is None else window.latency.percentile(percentile)


def is_rate(level: LoadLevel) -> bool:
    """Whether a level's value is a rate of requests, not a number of requests in flight."""
    return level.mode in RATE_MODES


def level_name(level: LoadLevel) -> str:
    """``Concurrency: 4`` or ``Request Rate: 50.5``."""
    return f"{'Request Rate' if is_rate(level) else 'Concurrency'}: {six_digits(level.value)}"


def level_names(levels: Sequence[LoadLevel]) -> str:
    """``Concurrency: 1, 2, 4``."""
    return ", ".join([level_name(levels[0]), *(six_digits(level.value) for level in levels[1:])])


def shown_levels(levels: list[LevelResult]) -> list[LevelResult]:
    """The levels of the closing list and the tables: those with requests whose latency is within the limit."""
    return [result for result in levels if result.is_within_limit and result.merged.requests]


def has_cache(server: ServerParts | None) -> bool:
    """Whether a model or one of its steps looked requests up in a response cache."""
    if server is None:
        return False
    return bool(server.cache_hits or server.cache_misses) or any(has_cache(step) for step in server.composing)


@dataclass(frozen=True, slots=True)
class ClientAverages:
    """What one request took on the client's side, on average, in nanoseconds."""

    latency: float
    send: float
    wait: float
    receive: float


def client_averages(window: Window) -> ClientAverages:
    """Averages over the requests of a window; all 0 when there are none."""
    count = max(window.requests, 1)
    return ClientAverages(
        latency=window.latency.mean,
        send=window.send_ns / count,
        wait=window.wait_ns / count,
        receive=window.receive_ns / count,
    )


@dataclass(frozen=True, slots=True)
class ServerAverages:
    """What one request took in the server, on average, in nanoseconds.

    Attributes:
        compute_*: of the requests that ran.
        cache_hit, cache_miss: of the requests that hit or missed.
        hit_or_miss: of all requests, what the cache took, or the cache and the run.
    """

    request: float
    queue: float
    compute_input: float
    compute_infer: float
    compute_output: float
    cache_hit: float
    cache_miss: float
    hit_or_miss: float

    @property
    def compute(self) -> float:
        """Input, inference and output of a request that ran."""
        return self.compute_input + self.compute_infer + self.compute_output


def server_averages(server: ServerParts) -> ServerAverages:
    """A model's averages over its successful requests."""
    requests = max(server.successes, 1)
    runs = max(server.successes - server.cache_hits, 1)
    compute_ns = server.compute_input_ns + server.compute_infer_ns + server.compute_output_ns
    return ServerAverages(
        request=server.request_ns / requests,
        queue=server.queue_ns / requests,
        compute_input=server.compute_input_ns / runs,
        compute_infer=server.compute_infer_ns / runs,
        compute_output=server.compute_output_ns / runs,
        cache_hit=server.cache_hit_ns / max(server.cache_hits, 1),
        cache_miss=server.cache_miss_ns / max(server.cache_misses, 1),
        hit_or_miss=(server.cache_hit_ns + server.cache_miss_ns + compute_ns) / requests,
    )


@dataclass(frozen=True, slots=True)
class EnsembleAverages:
    """The sums of the averages of an ensemble's steps, in nanoseconds."""

    queue: float
    compute: float
    cache_hit: float
    cache_miss: float
    hit_or_miss: float


def ensemble_averages(server: ServerParts) -> EnsembleAverages:
    """Queue and compute of all steps; a step that is an ensemble counts with those of its own steps."""
    queue = compute = hit = miss = hit_or_miss = 0.0
    for step in server.composing:
        if step.composing:
            inner = ensemble_averages(step)
            queue, compute, hit_or_miss = queue + inner.queue, compute + inner.compute, hit_or_miss + inner.hit_or_miss
            hit, miss = hit + inner.cache_hit, miss + inner.cache_miss
            continue
        own = server_averages(step)
        queue, compute, hit_or_miss = queue + own.queue, compute + own.compute, hit_or_miss + own.hit_or_miss
        # A step without a cache counts as one that always misses.
        hit, miss = hit + own.cache_hit, miss + own.cache_miss + own.compute
    return EnsembleAverages(queue, compute, hit, miss, hit_or_miss)


@dataclass(frozen=True, slots=True)
class LatencyParts:
    """Where the average latency of a request went, in microseconds.

    Attributes:
        schedule: from the time at which the schedule wanted a request sent to its sending.
        network: of the wait for the response, what the server does not account for.
        event_loop: the same where the model runs in the generator's process: waiting for a turn of their event loop.
        response_wait: all of the wait for the response, where the server gave no figures.
        server_overhead: in the server, but neither in a queue nor in a model.
        cache: in the response cache.
    """

    schedule: float = 0.0
    client_send: float = 0.0
    client_receive: float = 0.0
    network: float = 0.0
    event_loop: float = 0.0
    response_wait: float = 0.0
    server_overhead: float = 0.0
    queue: float = 0.0
    cache: float = 0.0
    compute_input: float = 0.0
    compute_infer: float = 0.0
    compute_output: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return float(sum(getattr(self, part.name) for part in fields(self)))


def latency_parts(window: Window) -> LatencyParts:
    """Split the average latency of a window; without the server's figures its parts are one, ``response_wait``."""
    client = client_averages(window)
    schedule = max(client.latency - client.send - client.wait - client.receive, 0.0) if client.wait else 0.0
    # Streams have no send and receive times of their own: all of the latency counts as waiting.
    wait = client.wait or client.latency
    server = window.server
    if server is None or not server.successes:
        whole = max(wait, 0.0) / 1e3
        return LatencyParts(schedule / 1e3, client.send / 1e3, client.receive / 1e3, response_wait=whole)
    inside = _inside_server(server)
    own = server_averages(server)
    outside = max(wait - own.request, 0.0) / 1e3
    return LatencyParts(
        schedule=schedule / 1e3,
        client_send=client.send / 1e3,
        client_receive=client.receive / 1e3,
        network=0.0 if window.client.serves else outside,
        event_loop=outside if window.client.serves else 0.0,
        server_overhead=max(own.request - sum(inside), 0.0) / 1e3,
        queue=inside[0] / 1e3,
        cache=inside[1] / 1e3,
        compute_input=inside[2] / 1e3,
        compute_infer=inside[3] / 1e3,
        compute_output=inside[4] / 1e3,
    )


def _inside_server(server: ServerParts) -> tuple[float, float, float, float, float]:
    """Queue, cache, compute input, infer and output in ns for each request; of an ensemble the sums of its steps."""
    if server.composing:
        steps = [_inside_server(step) for step in server.composing]
        queue, cache, given, infer, output = (sum(column) for column in zip(*steps, strict=True))
        return queue, cache, given, infer, output
    requests = max(server.successes, 1)
    return (
        server.queue_ns / requests,
        (server.cache_hit_ns + server.cache_miss_ns) / requests,
        server.compute_input_ns / requests,
        server.compute_infer_ns / requests,
        server.compute_output_ns / requests,
    )
