"""Requests to a server in the same process: no network, no client library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .. import machine
from ..figures import Bound, CaseError, Figure
from ..rounds import alternate, median
from ..settings import Settings

SCRIPTS = Path(__file__).resolve().parents[2]
START_SECONDS = 60


def measure(settings: Settings) -> Iterator[Figure]:
    """``infer`` of 16 floats: one at a time, and 16 at a time from one event loop, all on one core."""
    found = alternate(settings.rounds, {"calls": lambda: _calls(settings.seconds)})["calls"]

    def middle(name: str) -> float:
        return median(found, lambda sample: sample[name])

    yield Figure("in_process_infer", middle("median_us"), "us", Bound("<=", 60), "identity, one at a time")
    yield Figure("in_process_rate", middle("per_s"), "/s", Bound(">=", 20_000), "identity, 16 at a time")
    yield Figure("in_process_function", middle("function_median_us"), "us", None, "a bound function, one at a time")
    yield Figure("in_process_function_rate", middle("function_per_s"), "/s", None, "a bound function, 16 at a time")


def _calls(seconds: int) -> dict[str, float]:
    command = machine.on_core(
        [sys.executable, "-m", "benchmarks.in_process_calls", str(seconds)], machine.server_core()
    )
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=START_SECONDS + 5 * seconds, env=environment
    )
    if done.returncode:
        raise CaseError(f"calling the server in the process failed: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
