"""The contract of an in-process backend whose models get the requests of a batch as they are, and return from a call.

Unlike ``Instance`` such a model gathers no batch, and unlike ``RequestListInstance`` it needs no asyncio loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from naiad.backend_api.backend import Arrays, Backend, Instance
from naiad.config.spec import InstanceGroupSpec
from naiad.errors import InternalError, NaiadError
from naiad.request import InferRequest
from naiad.tensor.device_tensor import Device


class RequestResult(NamedTuple):
    """What a model made of one request: outputs, or an error.

    Attributes:
        outputs: arrays by name, which nobody changes any more; None with an error.
        is_own: the error is a response that the model chose, and no failure.
    """

    outputs: Arrays | None
    error: NaiadError | None = None
    is_own: bool = False


class RequestBatchInstance(ABC):
    """One executable copy of a model. It is created, used and closed in its own thread.

    Attributes:
        device: where inputs may be ``DeviceTensor`` objects, which its model may write to, and where the outputs
            ``resident`` of a request may stay, which are then complete; None for the processor's memory.
    """

    device: Device | None = None

    @abstractmethod
    def execute(self, requests: Sequence[InferRequest]) -> Sequence[RequestResult]:
        """Run the model once; one result for each request, in their order.

        Args:
            requests: of one batch. Their inputs may be shared with others: they must not be written to.

        Raises:
            Exception: whatever the model raises is the error of each request.
        """

    def close(self) -> None:
        """Release the resources of the instance. Called once."""
        return


class RequestBatchBackend(Backend):
    """A backend whose instances are ``RequestBatchInstance``."""

    @abstractmethod
    def create_request_batch(self, group: InstanceGroupSpec, index: int) -> RequestBatchInstance:
        """A new instance; called in the thread that will use it."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Never called: its instances take no gathered batches."""
        raise InternalError("a backend of request batches has no instances that run gathered batches")
