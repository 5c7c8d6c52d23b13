"""The server ends, in whatever way: no process of a model is left, and none that a model has started."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from naiad.processes import reaper as reaper
from naiad.processes.reaper_program import GRACE_S
from naiad.testing import wait_until
from support.python_acts import ACTS, SPIN_IN_C, act
from support.python_models import DOUBLES, Client, client_of, write_python_model

# The reaper's grace, and a busy machine.
GONE_S = 15.0
PROGRAM = str(reaper.PROGRAM)
FORKS = "pid = os.fork()\nif not pid: time.sleep(600)\nprint('started', pid, flush=True)"
FORKS_TWICE = """
r, w = os.pipe()
if not os.fork():
    pid = os.fork()
    if pid:
        os.write(w, b'%d' % pid)
        os._exit(0)
    time.sleep(600)
os.wait()
print('started', int(os.read(r, 20)), flush=True)
"""
STARTS = "import subprocess\nprint('started', subprocess.Popen(['sleep', '600']).pid, flush=True)"


def started_by(client: Client, do: str) -> psutil.Process:
    """What a model starts when it does something."""
    before = len(told(client))
    assert act(client, do) == ""
    wait_until(lambda: len(told(client)) > before, 10, "the model has said what it started")
    return psutil.Process(int(told(client)[-1]))


def told(client: Client) -> list[str]:
    return re.findall(r"started (\d+)", client.server.log)


@contextmanager
def acting(folder: Path, *options: object, **more: object) -> Iterator[Client]:
    write_python_model(folder / "models", "acts", ACTS)
    with client_of(folder / "models", folder / "log", *options, **more) as client:
        found = client.children()
        try:
            yield client
        finally:
            # What a test that failed leaves behind.
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def gone(*processes: psutil.Process) -> None:
    """Wait until they are gone; what is left is killed and named."""
    _, alive = psutil.wait_procs(processes, GONE_S)
    for process in alive:
        process.kill()
    assert alive == []


@pytest.mark.slow
def test_what_a_model_starts_ends_with_its_process(tmp_path: Path) -> None:
    with acting(tmp_path) as client:
        helpers = [started_by(client, do) for do in (FORKS, FORKS_TWICE, STARTS)]
        (child,) = client.children()
        child.kill()
        gone(*helpers)
        wait_until(lambda: act(client, "") == "", 15, "the model is back")
        helpers = [started_by(client, do) for do in (FORKS, FORKS_TWICE, STARTS)]
        assert client.server.stop() == 0
        gone(*helpers)


@pytest.mark.slow
def test_a_killed_server_takes_a_stopped_process_along(tmp_path: Path) -> None:
    with acting(tmp_path) as client:
        helper = started_by(client, FORKS)
        (child,) = client.children()
        child.suspend()
        client.server.signal(signal.SIGKILL)
        gone(child, helper)


@pytest.mark.slow
def test_leaving_at_once_takes_a_process_along_that_native_code_holds(tmp_path: Path) -> None:
    with acting(tmp_path, "--exit-timeout-secs=1") as client, ThreadPoolExecutor(1) as caller:
        (child,) = client.children()
        asked = caller.submit(act, client, f"{STARTS}\n{SPIN_IN_C}")
        wait_until(lambda: told(client), 10, "the model is busy")
        helper = psutil.Process(int(told(client)[-1]))
        client.server.signal()
        assert client.server.wait_exit(10) == 1
        assert asked.result(10) != ""
        # Not only once the grace of the reaper is over.
        _, alive = psutil.wait_procs([child, helper], GRACE_S / 2)
        assert alive == []


@pytest.mark.slow
def test_a_warden_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with acting(tmp_path, "--model-control-mode=explicit", "--load-model=acts") as client:
        (first,) = reapers(client)
        first.kill()
        gone(first)
        write_python_model(tmp_path / "models", "doubles", DOUBLES)
        client.grpc.load_model("doubles")
        (second,) = reapers(client)
        assert client.server.stop() == 0
        gone(second)


def reapers(client: Client) -> list[psutil.Process]:
    """Those that watch over a server: processes of that program with the other end of one of its pipes."""
    ours = pipes(client.server.process.pid)
    programs = [p for p in psutil.process_iter(["cmdline"]) if PROGRAM in (p.info["cmdline"] or ())]
    return [program for program in programs if ours & pipes(program.pid)]


def pipes(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # Files are closed meanwhile.
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return {name for name in found if name.startswith("pipe:")}
