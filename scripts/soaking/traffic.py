"""Callers of all targets on one event loop, at once or at a rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import numpy as np

from naiad.client import AsyncClient, ResponseError, RetryPolicy
from naiad.errors import NaiadError
from naiad.testing import RunningServer

from .callers import Caller, StreamCaller, WrongOutputError
from .record import Failure, Record, cause_of
from .targets import Target

CALLERS = 4
"""Of each target, with the protocols in turns."""
TIMEOUT_S = 60.0
"""No request takes as long: one that does is stuck."""
PAUSE_S = 0.05
"""After a failure, so that a server that is gone is not asked all the time."""

clock = time.monotonic_ns


class Traffic:
    """Requests to a server as long as the context lasts.

    Args:
        rates: requests a second by the target's name; without them each caller sends a request when it has the response
            to the last one.
    """

    def __init__(
        self, server: RunningServer, targets: Sequence[Target], seed: int, rates: Mapping[str, float] | None = None
    ) -> None:
        self.record = Record(clock())
        self._urls = {"http": server.url, "grpc": f"grpc://{server.grpc_url}"}
        self._targets = targets
        self._rates = rates
        self._random = np.random.default_rng(seed)
        self._ends = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Errors are counted, so nothing is tried again.
        retries = RetryPolicy(attempts=1)
        clients = {
            protocol: await self._stack.enter_async_context(AsyncClient(url, timeout_s=TIMEOUT_S, retries=retries))
            for protocol, url in self._urls.items()
        }
        for target in self._targets:
            for number in range(CALLERS):
                protocol = target.protocols[number % len(target.protocols)]
                (random,) = self._random.spawn(1)
                call = self._call(
                    target, protocol, clients[protocol], target.caller(random), self._pauses(target, random)
                )
                self._tasks.append(asyncio.create_task(call))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        async with self._stack:
            await asyncio.gather(*self._tasks)

    def _pauses(self, target: Target, random: np.random.Generator) -> Iterator[float]:
        """Seconds from one request of a caller to the next."""
        rate = 0.0 if self._rates is None else self._rates[target.name]
        while True:
            yield float(random.exponential(CALLERS / rate)) if rate else 0.0

    async def _call(
        self, target: Target, protocol: str, client: AsyncClient, caller: Caller, pauses: Iterator[float]
    ) -> None:
        due_s = time.monotonic()
        while not self._ends.is_set():
            due_s += next(pauses)
            await self._sleep(due_s - time.monotonic())
            if not await self._exchange(target, protocol, client, caller):
                await self._sleep(PAUSE_S)
                # What was due while the model was away is not sent in one burst.
                due_s = max(due_s, time.monotonic())

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the end."""
        if seconds > 0:
            try:
                await asyncio.wait_for(self._ends.wait(), seconds)
            except TimeoutError:
                return

    async def _exchange(self, target: Target, protocol: str, client: AsyncClient, caller: Caller) -> bool:
        """One request; whether it went well."""
        began_ns = clock()
        try:
            await caller.call(client, began_ns)
        except (NaiadError, WrongOutputError, OSError) as error:
            is_stream = isinstance(caller, StreamCaller)
            may_be_repeated = isinstance(error, ResponseError) and (is_stream or error.may_pass_later)
            failure = Failure(
                target.name, protocol, cause_of(error), may_be_repeated, began_ns, clock(), caller.began_ns
            )
            self.record.failures.append(failure)
            caller.failed()
            return False
        ended_ns = clock()
        self.record.note(target.name, ended_ns - began_ns, ended_ns)
        return True
