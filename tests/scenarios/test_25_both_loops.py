"""A closed and an open loop print their results, and the report warns when the client is the limit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from naiad.testing import RunningServer, serving
from support.served_models import identity, write_model

BEYOND = 60_000
"""More requests a second than a generator of one process can send."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("loops")
    write_model(folder / "models", "m", identity(dims="16"))
    with serving(folder / "log", folder / "models") as server:
        yield server


def report(server: RunningServer, requests: int, *load: object) -> str:
    words = ["perf", "-m", "m", "-u", server.url, "--request-count", requests, *load]
    command = [sys.executable, "-m", "naiad", *map(str, words)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_results_of_both_loops_are_printed(server: RunningServer) -> None:
    closed = report(server, 200, "--concurrency-range", 4)
    opened = report(server, 200, "--request-rate-range", 100)
    assert "Concurrency: 4, throughput: " in closed
    assert "Request Rate: 100, throughput: " in opened
    for text in (closed, opened):
        assert "Request count: 200" in text
        assert "p99 latency: " in text


@pytest.mark.slow
def test_a_client_that_is_the_limit_is_named(server: RunningServer) -> None:
    text = report(server, BEYOND, "--request-rate-range", BEYOND)
    assert "was not able to keep up with the desired request rate" in text
    assert "Schedule: " in text
