"""What the server holds, looked at again and again: memory, descriptors, threads, shared memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import psutil
from benchmarks import machine

COUNT = 240
"""Samples of a run."""
SHORTEST_S = 1.0
TRIES = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server and its workers held at one time.

    Attributes:
        at_s: on the monotonic clock.
        rss_bytes: of the server process; ``tree_bytes`` with its workers.
        shared_bytes: of all shared memory that they have open or mapped.
        busy_s: processor time that the machine has spent on any program; ``server_s`` on the server process without its
            workers, ``callers_s`` on this one, which sends the requests.
    """

    at_s: float
    rss_bytes: int
    tree_bytes: int
    descriptors: int
    threads: int
    shared_bytes: int
    busy_s: float
    server_s: float
    callers_s: float


def sample(pid: int) -> Sample:
    """Look at a server and its workers."""
    server = psutil.Process(pid)
    for attempt in range(TRIES):
        try:
            shared_bytes = machine.shared_bytes(pid)
            break
        except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
            # A worker has ended meanwhile.
            if attempt == TRIES - 1:
                raise
    return Sample(
        time.monotonic(),
        server.memory_info().rss,
        machine.resident_bytes(pid),
        server.num_fds(),
        server.num_threads(),
        shared_bytes,
        _busy_s(),
        sum(server.cpu_times()[:2]),
        time.process_time(),
    )


def _busy_s() -> float:
    times = psutil.cpu_times()
    # The time of guests is in that of users as well.
    idle_s = sum(getattr(times, name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice"))
    return float(sum(times) - idle_s)


async def watch(pid: int, seconds: float, samples: list[Sample]) -> None:
    """Look at a server for so long, at most ``COUNT`` times; ``samples`` gets what was seen."""
    end_s = time.monotonic() + seconds
    period_s = max(SHORTEST_S, seconds / COUNT)
    while time.monotonic() + period_s < end_s:
        await asyncio.sleep(period_s)
        samples.append(await asyncio.to_thread(sample, pid))


def slope_per_hour(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """The median of the slopes between any two samples, per hour: one step up or down does not count as a slope."""
    slopes = [(value(b) - value(a)) / (b.at_s - a.at_s) for a, b in combinations(samples, 2)]
    return float(np.median(slopes)) * 3600 if slopes else 0.0
