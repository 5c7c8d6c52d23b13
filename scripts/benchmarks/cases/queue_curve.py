"""The cost of a request for the event loop, by the length of its model's queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from ..direct import SCRIPTS
from ..figures import Bound, CaseError, Figure
from ..settings import Settings

KINDS = {"plain": ("run", "forward", "reverse"), "priorities": ("run", "forward", "reverse")}
NOTES = {
    "run": "queued and run, 32 at a time",
    "forward": "queued and cancelled, oldest first",
    "reverse": "newest first",
}
LIMIT_S = 120


def measure(settings: Settings) -> Iterator[Figure]:
    """The curve of each kind of queue, and its end over its beginning."""
    for kind, ends in KINDS.items():
        for end in ends:
            found = _curve(kind, end)
            for count, cost_us in found.items():
                yield Figure(f"queue_{kind}_{end}_{count}", cost_us, "CPU us/request", note=NOTES[end])
            growth = found["100000"] / found["100"]
            yield Figure(f"queue_{kind}_{end}_growth", growth, "times", Bound("<=", 2), "100,000 waiting over 100")


def _curve(kind: str, end: str) -> dict[str, float]:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.queueing", kind, end],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
    )
    if finished.returncode:
        raise CaseError(f"queueing {kind} {end} failed: {finished.stderr[-2000:]}")
    curve: dict[str, float] = json.loads(finished.stdout)
    return curve
