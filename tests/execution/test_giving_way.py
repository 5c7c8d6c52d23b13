"""Processes of frameworks give way while they load, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from naiad.execution.worker.cpu_priority import BY, CpuPriority, can_give_way
from server.running import start, until
from server.versioned import ONNX, write_onnx

pytestmark = pytest.mark.skipif(not can_give_way(), reason="this process may not take back that it gives way")
THREADS = "import threading; b = threading.Event(); [threading.Thread(target=b.wait).start() for _ in range(3)]"
PROCESS = 'parameters { key: "execution" value { string_value: "process" } } instance_group [ { count: 2 } ]'
OTHER, IDLE = os.SCHED_OTHER, os.SCHED_IDLE


def ways(pid: int) -> set[tuple[int, int]]:
    """Policy and niceness of all threads of a process."""
    tasks = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    return {(os.sched_getscheduler(task), os.getpriority(os.PRIO_PROCESS, task)) for task in tasks}


def own() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as found:
        try:
            yield found
        finally:
            found.kill()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with running(f"import sys; sys.stdin.read(1); {THREADS}; b.wait()") as found:
        yield found


def test_all_threads_are_given_back_what_the_server_has(process: subprocess.Popen[bytes]) -> None:
    way = CpuPriority(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 4, 10, "its threads run")
    assert {policy for policy, _ in ways(process.pid)} == {IDLE}
    way.end()
    assert ways(process.pid) == {(OTHER, own())}
    assert ways(os.getpid()) == {(OTHER, own())}


def test_one_that_is_run_gives_way_all_the_time() -> None:
    with running("while True: pass") as process:
        way = CpuPriority(process.pid, patience_s=60)
        until(lambda: psutil.Process(process.pid).cpu_times().user > 0.1, 30, "it has run")
        way.look()
        assert {policy for policy, _ in ways(process.pid)} == {IDLE}


@pytest.mark.slow
def test_one_that_is_hardly_run_gives_way_in_part() -> None:
    core = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with ExitStack() as stack:
        process, *_ = [stack.enter_context(running(busy)) for _ in range(2)]
        way = CpuPriority(process.pid, patience_s=0.5)

        def gives_way_in_part() -> bool:
            way.look()
            return ways(process.pid) == {(OTHER, min(19, own() + BY))}

        until(gives_way_in_part, 60, "it gives way in part")
        way.end()
        assert ways(process.pid) == {(OTHER, own())}


def test_a_process_that_is_gone_is_no_error(process: subprocess.Popen[bytes]) -> None:
    way = CpuPriority(process.pid)
    process.kill()
    process.wait()
    way.look()
    way.end()
    CpuPriority(process.pid)


@pytest.mark.slow
def test_processes_of_a_model_give_way_until_it_is_there(tmp_path: Path) -> None:
    write_onnx(tmp_path / "models", "m", 1, PROCESS)
    server = start(tmp_path / "log", tmp_path / "models")
    seen: set[tuple[int, int]] = set()

    def look() -> bool:
        for child in psutil.Process(server.process.pid).children():
            with_all = Path(f"/proc/{child.pid}/task")
            seen.update(ways(child.pid) if with_all.exists() else ())
        return " is ready: " in server.log

    try:
        until(look, 60, "the server is ready")
        server.wait_ready()
        assert IDLE in {policy for policy, _ in seen}
        assert server.infer("m", ONNX).status == 200
        children = psutil.Process(server.process.pid).children()
        assert len(children) == 2
        assert {way for child in children for way in ways(child.pid)} == {(OTHER, own())}
        assert server.stop() == 0
    finally:
        server.kill()
