"""Loads of whole HTTP requests that a program has prepared itself, for programs that measure with ``naiad.perf``.

``run.run_perf`` measures a model by the options of the command. These functions are for what it has no options for:
requests that all differ, that are meant to be refused, or whose responses only the program can judge.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from naiad.perf.load.host import sharpen_timers
from naiad.perf.load.load import Load
from naiad.perf.load.open_loop import OpenLoop
from naiad.perf.load.prepared import IteratedLoop, IteratedRequests
from naiad.perf.load.schedules import constant_schedule
from naiad.perf.measure.recorder import Recorder
from naiad.perf.results import Window
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.prepared_http import PreparedHttp, PreparedRequest
from naiad.perf.target.protocol import TargetError

_TURN_NS = 200_000_000
_FOLD_NS = 1_000_000_000

clock = time.monotonic_ns


def send_requests(url: str, requests: Iterator[PreparedRequest], in_flight: int, limit_s: float) -> Window:
    """Send all requests in their order, each as soon as fewer than ``in_flight`` are without a response.

    Args:
        url: ``host:port`` of the server.
        limit_s: the longest time that all of it may take, in seconds.

    Returns:
        What came of them. Errors are the problems that the requests' judges named, and lost connections.

    Raises:
        TargetError: the server is not reached, ends every connection, or has not responded to some in time.
    """
    opener = PreparedHttp(url)
    with EpollLoop() as loop:
        return _run(loop, IteratedLoop(loop, opener, requests, Recorder(), in_flight), limit_s)


def send_at_rate(
    url: str, request: PreparedRequest, rate: float, count: int, max_in_flight: int, limit_s: float
) -> Window:
    """Send one request ``count`` times, ``rate`` times a second, however long the responses take.

    Latencies count from when requests were due. Those that are due while ``max_in_flight`` have no response wait.

    Raises:
        TargetError: as ``send_requests``.
    """
    sharpen_timers()
    opener = PreparedHttp(url)
    schedule = itertools.islice(constant_schedule(rate), count)
    source = IteratedRequests(itertools.repeat(request))
    with EpollLoop() as loop:
        load = OpenLoop(loop, opener, source, Recorder(), schedule, max_in_flight, max_in_flight)
        return _run(loop, load, limit_s)


def _run(loop: EpollLoop, load: Load, limit_s: float) -> Window:
    recorder, began = load.recorder, clock()
    end, fold = began + int(limit_s * 1e9), began + _FOLD_NS
    recorder.begin_window(began)
    load.begin(began)
    now = began
    try:
        while not load.is_over and not loop.failure and now < end:
            loop.turn(min(load.pump(now), now + _TURN_NS, end))
            now = clock()
            if now >= fold:
                recorder.fold(now)
                fold = now + _FOLD_NS
        if loop.failure:
            raise TargetError(loop.failure)
        if not load.is_over:
            raise TargetError(f"{load.in_flight} requests had no response within {limit_s:g} s")
    finally:
        load.close()
    return recorder.end_window(clock())
