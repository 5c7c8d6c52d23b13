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
from ..rounds import alternate, median, median_ratio
from ..settings import Settings

SCRIPTS = Path(__file__).resolve().parents[2]
START_SECONDS = 60


def measure(settings: Settings) -> Iterator[Figure]:
    """``infer`` of 16 floats: one at a time, and 16 at a time from one event loop, all on one core."""
    core = machine.server_core()
    found = alternate(settings.rounds, {"calls": lambda: _calls(core, "small", str(settings.seconds))})["calls"]

    def middle(name: str) -> float:
        return median(found, lambda sample: sample[name])

    yield Figure("in_process_infer", middle("median_us"), "us", Bound("<=", 60), "identity, one at a time")
    yield Figure("in_process_rate", middle("per_s"), "/s", Bound(">=", 20_000), "identity, 16 at a time")
    yield Figure("in_process_function", middle("function_median_us"), "us", None, "a bound function, one at a time")
    yield Figure("in_process_function_rate", middle("function_per_s"), "/s", None, "a bound function, 16 at a time")


def function_workers(settings: Settings) -> Iterator[Figure]:
    """A function that computes in Python, in one process and in one for each core; nothing is pinned."""
    cores = len(machine.cores())
    seconds = str(settings.seconds)
    kinds = {count: lambda count=count: _calls(None, "workers", str(count), seconds) for count in (1, cores)}
    found = alternate(settings.rounds, {str(count): call for count, call in kinds.items()})  # type: ignore[misc]
    ratio = median_ratio(found[str(cores)], found["1"], lambda sample: sample["per_s"])
    yield Figure("function_workers_1", median(found["1"], lambda sample: sample["per_s"]), "/s", None, "one process")
    note = f"{cores} processes over one"
    yield Figure("function_workers_ratio", ratio, "", Bound(">=", 0.8 * cores) if cores > 1 else None, note)


def _calls(core: int | None, *words: str) -> dict[str, float]:
    command = machine.on_core([sys.executable, "-m", "benchmarks.in_process_calls", *words], core)
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS + 5 * int(words[-1]),
        env=environment,
    )
    if done.returncode:
        raise CaseError(f"calling the server in the process failed: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
