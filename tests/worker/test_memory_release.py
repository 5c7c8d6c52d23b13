"""Much memory is released by a thread, which comes when it is needed and goes when it is not."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from naiad.worker.ipc import memory_release as module
from naiad.worker.ipc.memory_release import MUCH_BYTES, MemoryRelease
from support.worker_peer import WAIT_S, eventually


def ends(thread: int) -> None:
    """Wait until a thread has ended, by the system's number."""
    eventually(lambda: not Path(f"/proc/self/task/{thread}").exists(), "the thread ends")


def test_little_is_released_at_once() -> None:
    done: list[int] = []
    MemoryRelease().release(MUCH_BYTES - 1, lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]


def test_much_is_released_in_a_thread_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    releases, done = MemoryRelease(), list[int]()
    gate = threading.Event()
    releases.release(MUCH_BYTES, lambda: gate.wait(WAIT_S))
    for _ in range(100):
        releases.release(MUCH_BYTES, lambda: done.append(threading.get_native_id()))
    assert done == []
    gate.set()
    eventually(lambda: len(done) == 100, "all of it is done")
    assert len(set(done)) == 1 and done[0] != threading.get_native_id()
    ends(done[0])
    releases.release(MUCH_BYTES, lambda: done.append(threading.get_native_id()))
    eventually(lambda: len(done) == 101, "there is a thread again")
    ends(done[-1])


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
