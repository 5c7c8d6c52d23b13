"""``--client-workers``: a load that several processes make, on real servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import psutil
import pytest

from naiad.perf.input.build import build_streams
from naiad.perf.load.loads import LoadFactory, encode_streams
from naiad.perf.options import parse_perf
from naiad.perf.results import ClientUsage, LevelResult, LoadLevel, LoadMode, Window
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.open import open_target
from naiad.perf.workers.crew import Crew
from naiad.perf.workers.messages import Prepare
from naiad.testing import RunningServer, serving, wait_until
from support import served_models
from support.perf_peer import peer
from support.perf_runs import measure, measure_level, started, wait_for_line, windows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the load generator is Linux's alone"),
]
MODEL = ("-m", "known")
END_S = 20
LONG = ("-p", 60_000, "-r", 3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("models")
    served_models.write_model(repository, "identity", served_models.identity("TYPE_FP32", "4", max_batch_size=8))
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(log, "--model-repository", repository) as running:
        yield running


def workers_of(pid: int) -> list[psutil.Process]:
    """The processes of the generator that a process has started."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if "naiad.perf.workers.process" in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return found


# ---- what is measured


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_server_counts_what_the_processes_count(server: RunningServer, protocol: str) -> None:
    url = server.url if protocol == "http" else server.grpc_url
    level = measure_level(
        *("-m", "identity", "-u", url, "-i", protocol, "--client-workers", 3),
        *("--concurrency-range", 7, "--request-count", 250),
    )
    merged = level.merged
    assert (merged.requests, merged.sent, merged.latency.count, dict(merged.errors)) == (250, 250, 250, {})
    assert merged.server is not None
    assert merged.server.successes == 250


def test_windows_follow_each_other_and_hold_all_requests() -> None:
    with peer(delay_ms=5) as address:
        level = measure_level(*MODEL, "-u", address, "--client-workers", 2, "--concurrency-range", 6, *windows(400))
    assert len(level.windows) == 3
    assert all(before.ended_ns == after.began_ns for before, after in pairwise(level.windows))
    assert level.merged.requests == sum(window.requests for window in level.windows) > 50
    assert level.merged.latency.least >= 5e6
    assert level.merged.client.cpu_us_per_request > 0
    assert not workers_of(os.getpid())


@pytest.mark.parametrize("distribution", ["constant", "poisson"])
def test_a_schedule_is_kept_by_all_together(distribution: str) -> None:
    words = ("--request-rate-range", 300, "--request-distribution", distribution, "--request-count", 300)
    with peer() as address:
        level = measure_level(*MODEL, "-u", address, "--client-workers", 3, *words)
    merged = level.merged
    assert merged.requests == merged.sent == merged.send_delay.count == 300
    assert merged.duration_s == pytest.approx(1.0, abs=0.3)


def test_every_level_has_its_own_share() -> None:
    with peer(delay_ms=20) as address:
        words = ("--client-workers", 2, "--concurrency-range", "1:3", *windows(250))
        report = measure(*MODEL, "-u", address, *words)
    assert all(level.merged.requests > 20 and not level.merged.errors for level in report.levels)
    assert [level.merged.client.cores for level in report.levels] == [1, 2, 2]


# ---- as many as needed


def test_more_processes_come_when_the_generator_is_the_bottleneck() -> None:
    with peer() as address:
        settings = parse_perf([*MODEL, "-u", address, "--client-workers", "0"], {})
        target = open_target(settings)
        streams = build_streams(settings.input, model := target.describe(), streams=1)
        factory = LoadFactory(settings, target, model, encode_streams(target, streams), [])
        level = LoadLevel(LoadMode.CONCURRENCY, 8)
        idle, busy = (Window(0, 1, client=ClientUsage(1.0, 1, is_bottleneck=full)) for full in (False, True))
        with Crew(settings, factory, Prepare(settings, tuple(streams), None)) as crew, EpollLoop() as loop:
            assert crew.open(loop, level).processes == 1
            assert not crew.grows(LevelResult(level, 1, idle))
            if not crew.grows(LevelResult(level, 1, busy)):
                pytest.skip("there is but one core")
            assert crew.open(loop, level).processes == 2
            assert len(crew.pids) == 2
    assert not workers_of(os.getpid())


# ---- ends


def test_a_process_that_dies_ends_the_run_with_its_cause() -> None:
    words = (*MODEL, "--client-workers", 2, "--concurrency-range", 4, *LONG)
    with peer(delay_ms=1) as address, started(*words, "-u", address) as command:
        workers = wait_for_workers(command)
        workers[1].kill()
        _, errors = command.communicate(timeout=30)
    assert command.returncode not in (0, None)
    assert f"process {workers[1].pid}) was ended by SIGKILL" in errors
    wait_until(lambda: not any(worker.is_running() for worker in workers), END_S, "no process is left")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_run_is_ended(number: int) -> None:
    words = (*MODEL, "--client-workers", 2, "--concurrency-range", 4, *LONG)
    with peer(delay_ms=1) as address, started(*words, "-u", address) as command:
        workers = wait_for_workers(command)
        command.send_signal(number)
        _, errors = command.communicate(timeout=30)
    assert "Traceback" not in errors
    wait_until(lambda: not any(worker.is_running() for worker in workers), END_S, "no process is left")


def wait_for_workers(command: subprocess.Popen[str]) -> list[psutil.Process]:
    """The two processes of a command that makes its load."""
    wait_for_line(command, "Request concurrency: 4")
    wait_until(lambda: len(workers_of(command.pid)) == 2, END_S, "both processes run")
    return workers_of(command.pid)


def test_a_server_that_ends_is_named_once() -> None:
    words = ("--client-workers", 2, "--concurrency-range", 4, "--request-count", 100_000)
    with peer(end_after=60) as address:
        level = measure_level(*MODEL, "-u", address, *words)
    assert level.merged.requests <= 59
    (note,) = level.notes
    assert re.search("cannot connect to|closes every connection", note)
    assert not workers_of(os.getpid())
