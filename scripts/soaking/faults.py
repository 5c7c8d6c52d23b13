"""What happens to the server under load: models are reloaded, and workers killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from naiad.client import AsyncClient, RetryPolicy
from naiad.errors import NaiadError
from naiad.testing import RunningServer

from .record import Failure, cause_of

PERIOD_S = 60.0
RELOAD_AT_S, KILL_AT_S = 15.0, 40.0
"""In each period."""
BACK_S = 60.0
"""The longest time until a killed worker is back and a reload is over."""
LOOK_S = 0.02
PROGRAMS = ("naiad/worker/main.py", "naiad/backends/out_of_process/program.py")
"""What the workers of Python models and of frameworks run."""
LATE_NS = 100_000_000
"""A worker that is killed may end a request for so long before others hear of its end."""
LOST_SEQUENCE = " 400: ", "which had its state, is gone"
"""What the next requests of a sequence are told, or those that wait for its instance as it ends."""
CAUSE_OF_KILL = "SIGKILL"

clock = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed, when, and when the server was ready again; ``name`` is that of the worker."""

    killed_ns: int
    back_ns: int
    name: str

    def explains(self, failure: Failure) -> bool:
        """Whether a failure is of a request, or a sequence, that the killed worker held."""
        if failure.may_be_repeated and CAUSE_OF_KILL in failure.cause:
            return failure.began_ns <= self.back_ns and failure.ended_ns >= self.killed_ns
        began_ns = failure.sequence_began_ns
        # The state of a sequence is lost with its worker, and its next request is told so.
        return (
            bool(began_ns)
            and began_ns <= self.killed_ns + LATE_NS <= failure.ended_ns + LATE_NS
            and any(text in failure.cause for text in LOST_SEQUENCE)
        )


@dataclass(frozen=True, slots=True)
class Reload:
    """A model that was loaded anew, when that began, and how long it took."""

    model: str
    began_ns: int
    seconds: float


@dataclass(slots=True)
class Faults:
    """Reloads and kills of one run, one of each a minute.

    Args:
        models: those that may be reloaded, by name.
        repository: where their files are.

    Attributes:
        kills: in their order.
        reloads: in their order.
        problems: reloads that failed, and workers that did not come back.
    """

    server: RunningServer
    repository: Path
    models: Sequence[str]
    random: Random
    kills: list[Kill] = field(default_factory=list)
    reloads: list[Reload] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Disturb the server for so long."""
        began_s = time.monotonic()
        retries = RetryPolicy(attempts=1)
        async with AsyncClient(self.server.url, timeout_s=BACK_S, retries=retries) as client:
            for at_s, act in self._schedule(seconds):
                await asyncio.sleep(max(0.0, began_s + at_s - time.monotonic()))
                await act(client)
        await asyncio.sleep(max(0.0, began_s + seconds - time.monotonic()))

    def _schedule(self, seconds: float) -> Iterator[tuple[float, Callable[[AsyncClient], Awaitable[None]]]]:
        for period in range(int(seconds // PERIOD_S) + 1):
            for at_s, act in ((RELOAD_AT_S, self._reload), (KILL_AT_S, self._kill)):
                if period * PERIOD_S + at_s < seconds:
                    yield period * PERIOD_S + at_s, act

    async def _reload(self, client: AsyncClient) -> None:
        """Load a model anew, as one whose files have changed."""
        model = self.random.choice(self.models)
        for folder, _, names in os.walk(self.repository / model, followlinks=True):
            for name in names:
                os.utime(Path(folder) / name)
        began_ns = clock()
        try:
            await client.load(model)
        except NaiadError as error:
            self.problems.append(f"the reload of '{model}' failed: {cause_of(error)}")
        self.reloads.append(Reload(model, began_ns, (clock() - began_ns) / 1e9))

    async def _kill(self, client: AsyncClient) -> None:
        """Kill one worker and wait until the server is ready again."""
        workers = running_workers(self.server.process.pid)
        if not workers:
            return
        worker = self.random.choice(sorted(workers, key=lambda process: process.pid))
        name = name_of(worker)
        killed_ns = clock()
        worker.send_signal(signal.SIGKILL)
        deadline_ns = killed_ns + int(BACK_S * 1e9)
        # First the new worker: until the server has seen the end of the killed one, it says that it is ready.
        while not (self._replaced(worker, len(workers)) and await client.ready()):
            if clock() > deadline_ns:
                self.problems.append(f"the server was not ready {BACK_S:g} s after a worker was killed")
                break
            await asyncio.sleep(LOOK_S)
        self.kills.append(Kill(killed_ns, clock(), name))

    def _replaced(self, worker: psutil.Process, count: int) -> bool:
        """Whether another process runs in the place of a killed worker, one of ``count``."""
        running = running_workers(self.server.process.pid)
        return len(running) >= count and worker not in running


def running_workers(pid: int) -> list[psutil.Process]:
    """The workers of a server that have not ended."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if any(word.endswith(PROGRAMS) for word in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def name_of(worker: psutil.Process) -> str:
    """What a worker is called: the last word of its command."""
    return worker.cmdline()[-1]
