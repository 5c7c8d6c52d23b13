"""Much memory is released by a thread, which comes when it is needed and goes when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from naiad.worker.ipc import memory_release as module
from naiad.worker.ipc.memory_release import MUCH_BYTES, MemoryRelease
from support.worker_peer import WAIT_S, eventually


def threads() -> int:
    """How many there are, those included that Python's ``threading`` does not know."""
    return len(os.listdir("/proc/self/task"))


def test_little_is_released_at_once() -> None:
    done: list[int] = []
    MemoryRelease().release(MUCH_BYTES - 1, lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]


def test_much_is_released_in_a_thread_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    releases, done, before = MemoryRelease(), list[int](), threads()
    gate = threading.Event()
    releases.release(MUCH_BYTES, lambda: gate.wait(WAIT_S))
    for _ in range(100):
        releases.release(MUCH_BYTES, lambda: done.append(threading.get_ident()))
    assert done == [] and threads() == before + 1
    gate.set()
    eventually(lambda: len(done) == 100, "all of it is done")
    assert len(set(done)) == 1 and done[0] != threading.get_ident()
    eventually(lambda: threads() == before, "the thread ends")
    releases.release(MUCH_BYTES, lambda: done.append(0))
    eventually(lambda: len(done) == 101, "there is a thread again")
    eventually(lambda: threads() == before, "the thread ends")


def test_without_a_thread_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "start_new_thread", refuse)
    releases, done = MemoryRelease(), list[int]()
    for number in range(2):
        releases.release(MUCH_BYTES, lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == [0, 1]


FORKS = """
import os, threading
from naiad.worker.ipc.memory_release import MUCH_BYTES, memory_release
for process in ("parent", "child"):
    done = threading.Event()
    memory_release.release(MUCH_BYTES, done.set)
    assert done.wait(20), process
    if process == "parent" and os.fork():
        _, status = os.wait()
        raise SystemExit(status)
"""


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], check=True, timeout=60)
