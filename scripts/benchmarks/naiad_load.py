"""One request again and again by `naiad perf`'s generator, in a process of its own.

Arguments: PORT CONNECTIONS SECONDS FILE [RATE].

Without a rate each connection sends its next request when it has the response to the last one. With a rate requests are
sent on a schedule, however long the responses take, and latencies count from when they were due.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from naiad.perf.prepared import send_at_rate, send_requests
from naiad.perf.results import Window
from naiad.perf.target.prepared_http import PreparedRequest, PreparedResponse
from naiad.perf.target.protocol import Problem, TargetError

from .closed_loop import shown

GRACE_SECONDS = 30


def judge(response: PreparedResponse) -> Problem | None:
    """A problem unless the response is a success."""
    if response.status == 200:
        return None
    return "failure", f"expected 200, got {response.status}: {shown(response.body)}"


def until(request: PreparedRequest, end: float) -> Iterator[PreparedRequest]:
    """The same request as long as ``end``, a time of ``perf_counter``, is to come."""
    while time.perf_counter() < end:
        yield request


def main() -> None:
    """Send, and print one JSON line as the wrk script does."""
    url, connections, seconds = f"127.0.0.1:{sys.argv[1]}", int(sys.argv[2]), float(sys.argv[3])
    request = PreparedRequest(Path(sys.argv[4]).read_bytes(), judge)
    limit_s = seconds + GRACE_SECONDS
    try:
        if len(sys.argv) > 5:
            rate = int(sys.argv[5])
            found = send_at_rate(url, request, rate, int(rate * seconds), connections, limit_s)
        else:
            requests = until(request, time.perf_counter() + seconds)
            found = send_requests(url, requests, connections, limit_s)
    except TargetError as error:
        result: dict[str, object] = {"requests": 0, "seconds": seconds, "wrong": 1, "problem": str(error)}
    else:
        result = summary(found)
    print("RESULT " + json.dumps(result))


def summary(found: Window) -> dict[str, object]:
    """The figures of a window."""
    problems = "; ".join(f"{count} x {kind}: {cause}" for (kind, cause), count in found.errors.items())
    wrong = found.errors.total()
    percentiles = {f"p{p}_us": found.latency.percentile(p) / 1e3 for p in (50, 95, 99)}
    return {"requests": found.requests, "seconds": found.duration_s, "wrong": wrong, "problem": problems} | percentiles


if __name__ == "__main__":
    main()
