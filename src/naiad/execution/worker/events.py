"""The events of workers, which the loaded model takes, or the warm-up before it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.request import Array, InferRequest

_Instance = TypeVar("_Instance", contravariant=True)


class WorkerEventSink(Protocol[_Instance]):
    """Takes the events of workers. Generic in the instance, so that this module names none of the classes that use
    it."""

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take one response, final or not, to a request of the batch."""

    def worker_completed(self, instance: _Instance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Take one response to each request of a batch that is over, in their order."""

    def worker_finished(self, instance: _Instance, batch: Batch) -> None:
        """The batch is over; requests without a final response stay open."""

    def worker_died(self, instance: _Instance) -> None:
        """The instance can take no batch for now."""

    def worker_down(self, instance: _Instance) -> None:
        """The worker will be down for a while."""

    def worker_ready(self, instance: _Instance) -> None:
        """The instance can take batches again."""

    def framework_finished(self, instance: _Instance, batches: list[Batch], is_free: bool) -> None:
        """Batches are done, with results or errors; ``is_free``: the instance can take the next one."""
