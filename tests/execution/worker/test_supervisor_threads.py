"""Waiting for the thread of a supervisor while that begins."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from naiad.execution.worker.supervisor import WorkerSupervisor


class Process:
    """A worker that ends when it is asked how."""

    def exit_reason(self) -> str:
        return "exit code 0"

    def close(self) -> None:
        """Nothing is open."""


class SlowToBegin(threading.Thread):
    """A thread that begins once somebody waits for it, or after half a second."""

    beginning = threading.Event()
    is_wanted = threading.Event()

    def start(self) -> None:
        self.beginning.set()
        self.is_wanted.wait(0.5)
        super().start()

    def join(self, timeout: float | None = None) -> None:
        self.is_wanted.set()
        super().join(timeout)


def test_a_thread_that_begins_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        ignored: Any = None
        supervisor = WorkerSupervisor("m_0", loop, ignored, lambda _, how: ended.append(how), ignored)
        worker: Any = Process()

        def wait() -> None:
            assert SlowToBegin.beginning.wait(10)
            supervisor.join(10)

        with ThreadPoolExecutor() as pool:
            # Before the patch: the thread of the pool is an ordinary one.
            waited = pool.submit(wait)
            with monkeypatch.context() as patched:
                patched.setattr("naiad.execution.worker.supervisor.threading.Thread", SlowToBegin)
                supervisor.end(worker)
            waited.result(10)
        while not ended:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(test(), 30))
    assert ended == ["exit code 0"]
