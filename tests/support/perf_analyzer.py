"""The official load generator as a program: where it is, and what it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

import pytest

RUN_S = 15
ATTEMPTS = 3
REQUEST_COUNT = re.compile(r"^\s*Request count: (\d+)", re.MULTILINE)
THROUGHPUT = re.compile(r"^\s*Throughput: ([\d.]+) infer/sec", re.MULTILINE)


def perf_analyzer() -> str:
    """Its path: ``NAIAD_PERF_ANALYZER``, or the one on PATH. The test is skipped where there is none."""
    found = os.environ.get("NAIAD_PERF_ANALYZER") or shutil.which("perf_analyzer")
    if not found:
        pytest.skip("perf_analyzer was not found: name it in NAIAD_PERF_ANALYZER or put it on PATH")
    return found


def run(command: list[str], within_s: float = RUN_S) -> str:
    """What it printed. Now and then all its threads wait for each other after the last answer: then it runs again."""
    for _ in range(ATTEMPTS):
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
        except subprocess.TimeoutExpired:
            continue
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout
    raise AssertionError(f"{ATTEMPTS} times not done within {within_s} s: {command}")


def successes(statistics: dict[str, Any]) -> int:
    """How many requests of a model have succeeded."""
    return int(statistics["inference_stats"]["success"]["count"])
