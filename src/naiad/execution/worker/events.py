"""Whom an instance that is a process answers to: the loaded model, or the warm-up before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from naiad.execution.batching.batch import Batch
from naiad.execution.worker.codec.writer import Response
from naiad.request import Array, InferRequest

if TYPE_CHECKING:
    from naiad.execution.worker.framework_instance import HostedInstance
    from naiad.execution.worker.instance import ProcessInstance


class Answers(Protocol):
    """Takes what a child says."""

    def child_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """One response, final or not, to a request of the batch."""

    def child_answered(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """The batch is over, with one response to each request in their order."""

    def child_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """The batch is over; requests without a final response stay open."""

    def child_died(self, instance: ProcessInstance) -> None:
        """The instance can take no batch for now."""

    def child_down(self, instance: ProcessInstance) -> None:
        """It will take a while until it can again."""

    def child_revived(self, instance: ProcessInstance) -> None:
        """It can again."""

    def hosted_finished(self, instance: HostedInstance, batches: list[Batch], is_free: bool) -> None:
        """Batches are done, with results or errors; ``is_free``: the instance can take the next one."""
