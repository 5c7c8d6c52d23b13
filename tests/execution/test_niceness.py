"""Processes of frameworks give way while they load, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from naiad.execution.niceness import BY, can_yield, yield_no_more, yield_to_requests
from server.running import start, until
from server.versioned import ONNX, write_onnx

pytestmark = pytest.mark.skipif(not can_yield(), reason="this process may not lower a niceness")
THREADS = "import threading; b = threading.Event(); [threading.Thread(target=b.wait).start() for _ in range(3)]"
PROCESS = 'parameters { key: "execution" value { string_value: "process" } } instance_group [ { count: 2 } ]'


def niceness(pid: int) -> set[int]:
    """Of all threads of a process."""
    return {os.getpriority(os.PRIO_PROCESS, int(task)) for task in os.listdir(f"/proc/{pid}/task")}


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    code = f"import sys; sys.stdin.read(1); {THREADS}; b.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as found:
        yield found
        found.kill()


def test_all_threads_get_their_niceness_back(process: subprocess.Popen[bytes]) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    yield_to_requests(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 4, 10, "its threads run")
    assert niceness(process.pid) == {min(19, own + BY)}
    yield_no_more(process.pid)
    assert niceness(process.pid) == {own}
    assert own == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_process_that_is_gone_is_no_error(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    yield_to_requests(process.pid)
    yield_no_more(process.pid)


@pytest.mark.slow
def test_processes_of_a_model_give_way_until_it_is_there(tmp_path: Path) -> None:
    write_onnx(tmp_path / "models", "m", 1, PROCESS)
    server = start(tmp_path / "log", tmp_path / "models")
    seen: set[int] = set()

    def look() -> bool:
        for child in psutil.Process(server.process.pid).children():
            with_all = Path(f"/proc/{child.pid}/task")
            seen.update(niceness(child.pid) if with_all.exists() else ())
        return " is ready: " in server.log

    try:
        until(look, 60, "the server is ready")
        server.wait_ready()
        own = os.getpriority(os.PRIO_PROCESS, server.process.pid)
        assert own + BY in seen
        assert server.infer("m", ONNX).status == 200
        children = psutil.Process(server.process.pid).children()
        assert len(children) == 2
        assert {value for child in children for value in niceness(child.pid)} == {own}
        assert server.stop() == 0
    finally:
        server.kill()
