"""The official load generator: ``NAIAD_PERF_ANALYZER`` names it, or it is on the path. ``scripts/test`` installs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

RUN_S = 15
ATTEMPTS = 3

REQUEST_COUNT = re.compile(r"^\s*Request count: (\d+)", re.MULTILINE)
THROUGHPUT = re.compile(r"^\s*Throughput: ([\d.]+) infer/sec", re.MULTILINE)


def found_tool() -> str:
    """Its path; the test is skipped where it is not installed."""
    found = os.environ.get("NAIAD_PERF_ANALYZER") or shutil.which("perf_analyzer")
    if not found:
        pytest.skip("perf_analyzer was not found: name it in NAIAD_PERF_ANALYZER or put it on PATH")
    return os.path.abspath(found)


def run_tool(command: Sequence[str], within_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
    """What it did. Now and then all its threads wait for each other after the last answer: then it runs again."""
    for _ in range(ATTEMPTS):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"{ATTEMPTS} times not done within {within_s} s: {command}")


def run(command: Sequence[str], within_s: float = RUN_S) -> str:
    """What it printed; it must succeed."""
    finished = run_tool(command, within_s)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def successes(statistics: dict[str, Any]) -> int:
    """How many requests of a model have succeeded."""
    return int(statistics["inference_stats"]["success"]["count"])
