"""The child of a Python model without a server around it: batches handed over on an event loop, one after another."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from time import monotonic_ns, perf_counter

import numpy as np

from naiad.config.read import read_config
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.worker.instance import ProcessInstance
from naiad.lifecycle.loading.load_version import LoadSettings, start_backend
from naiad.repository.local.discover import discover
from naiad.request import Array, InferRequest, RequestOptions

from .figures import CaseError

VALUES = 16
WARM_UP_SECONDS = 0.3
GRACE_SECONDS = 30.0


class Driver:
    """Takes what a child says, and gives it one batch after the other.

    Attributes:
        trips: seconds from handing a batch over to having all its answers, of every batch.
        elapsed: seconds from the first batch to the end of the last.
    """

    def __init__(self) -> None:
        self.trips = array("d")
        self.elapsed = 0.0
        self._done: asyncio.Future[None] | None = None

    async def drive(self, instance: ProcessInstance, rows: int, seconds: float) -> None:
        """Run batches of ``rows`` requests, each as soon as the answers to the last one are there.

        Raises:
            CaseError: an answer was an error, the child ended, or nothing came any more.
        """
        self._instance, self._rows = instance, rows
        self._done = asyncio.get_running_loop().create_future()
        self.trips = array("d")
        began = perf_counter()
        self._end = began + seconds
        self._hand_over()
        try:
            await asyncio.wait_for(self._done, seconds + GRACE_SECONDS)
        except TimeoutError:
            raise CaseError(f"a batch of {rows} was not answered within {GRACE_SECONDS:g} s") from None
        self.elapsed = perf_counter() - began

    def _hand_over(self) -> None:
        batch = Batch([small_request() for _ in range(self._rows)])
        self._handed_over = perf_counter()
        if self._instance.run(batch) is not None:
            self._fail(f"a batch could not be handed over: {batch.error}")

    def worker_completed(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """The batch is over, with an answer to each of its requests."""
        self._over()

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """An answer by itself, as errors are."""
        if response.error is not None:
            self._fail(f"a request failed: {response.error}")

    def worker_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """The batch is over, and its answers came by themselves."""
        self._over()

    def worker_died(self, instance: ProcessInstance) -> None:
        """The case is over."""
        self._fail(f"the child ended: {instance.problem}")

    def worker_down(self, instance: ProcessInstance) -> None:
        """Its end was noticed before."""

    def worker_ready(self, instance: ProcessInstance) -> None:
        """Too late."""

    def _over(self) -> None:
        self.trips.append(perf_counter() - self._handed_over)
        if self._done is None or self._done.done():
            return
        if perf_counter() < self._end:
            self._hand_over()
        else:
            self._done.set_result(None)

    def _fail(self, text: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(CaseError(text))


def small_request() -> InferRequest:
    """A request of 16 floats to the identity model, as a frontend would have read it."""
    return InferRequest(TERMS, {"INPUT0": ROW}, "", monotonic_ns())


ROW = np.random.default_rng(0).random((1, VALUES), np.float32)
TERMS = RequestOptions(("OUTPUT0",), 1, (("INPUT0", (VALUES,)),))


@contextlib.asynccontextmanager
async def driven_instance(repository: Path) -> AsyncIterator[tuple[ProcessInstance, Driver]]:
    """The first instance of the only model of a repository, in its process, and who drives it."""
    (source,) = discover([repository], []).models.values()
    settings = LoadSettings(lambda backend: {}, cores=1)
    _, backend, spec = await asyncio.to_thread(start_backend, source, 1, read_config(source), settings)
    child = backend.worker_spec(spec.instance_groups[0], 0)
    if child is None:
        raise CaseError(f"instances of {source.name} are no processes")
    driver = Driver()
    instance = ProcessInstance(source.name, spec, child, driver, asyncio.get_running_loop())
    try:
        await asyncio.to_thread(instance.start)
        await driver.drive(instance, 1, WARM_UP_SECONDS)
        yield instance, driver
    finally:
        await asyncio.to_thread(instance.stop)
        await asyncio.to_thread(instance.join)
        instance.detach()
        backend.close()


async def measure_trips(repository: Path, seconds: float) -> array[float]:
    """The sorted seconds of the round trips of one small request after another.

    Raises:
        CaseError: the child failed.
    """
    async with driven_instance(repository) as (instance, driver):
        await driver.drive(instance, 1, seconds)
    return array("d", sorted(driver.trips))


async def measure_batches(repository: Path, rows: int, seconds: float) -> float:
    """How many batches of ``rows`` small requests come back in a second, one after another.

    Raises:
        CaseError: the child failed.
    """
    async with driven_instance(repository) as (instance, driver):
        await driver.drive(instance, rows, seconds)
    return len(driver.trips) / driver.elapsed
