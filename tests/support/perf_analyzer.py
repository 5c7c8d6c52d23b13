"""The official load generator: ``NAIAD_PERF_ANALYZER`` names it, or it is on the path. ``scripts/test`` installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

import pytest

RUN_S = 15
ATTEMPTS = 3


def found_tool() -> str:
    """Its path; the test is skipped where it is not installed."""
    found = os.environ.get("NAIAD_PERF_ANALYZER") or shutil.which("perf_analyzer")
    if not found:
        pytest.skip("perf_analyzer was not found: name it in NAIAD_PERF_ANALYZER or put it on PATH")
    return os.path.abspath(found)


def run_tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What it did. Now and then all its threads wait for each other after the last answer: then it runs again."""
    for _ in range(ATTEMPTS):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"{ATTEMPTS} times not done within {RUN_S} s: {command}")
