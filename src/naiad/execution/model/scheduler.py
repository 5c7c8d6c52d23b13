"""A scheduler as a loaded model uses it: a queue of requests with the dispatcher that hands them to instances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.responder import ModelResponder
from naiad.request import Array, InferRequest


class Scheduler(Protocol):
    """Queues the requests of a model version and decides which of them run together, where and when.

    ``QueueScheduler`` has one queue for all instances, ``SequenceScheduler`` keeps sequences on their instances. All
    calls are made on the event loop.
    """

    @property
    def dispatcher(self) -> Dispatcher:
        """Hands the batches to the instances."""

    @property
    def batches(self) -> bool:
        """Whether a request may wait although an instance is idle: for others that may join its batch, say."""

    @property
    def may_refuse(self) -> bool:
        """Whether ``push`` may raise."""

    @property
    def has_live(self) -> bool:
        """Whether a caller that waits for no response would lose something with the model: a live sequence."""

    def limit_batches(self, max_rows: int, max_queue_delay_ns: int) -> None:
        """Make batches of at most ``max_rows`` rows from now on, whose requests wait at most for the delay.

        Without effect where requests are not put together by a dynamic batcher.
        """

    # Requests

    @property
    def push(self) -> Callable[[InferRequest], object]:
        """Queues an admitted request; bound once, as every request needs it.

        Raises:
            NaiadError: the request is refused, which changes nothing.
        """

    def wake(self, request: InferRequest) -> None:
        """Have an idle instance look at the queue: ``request`` was pushed, is counted, and no turn is set."""

    def requeue(self, request: InferRequest) -> None:
        """Queue a request again that the model released for that (``FLAG_RESCHEDULE``)."""

    def cancel(self, request: InferRequest) -> InferRequest | None:
        """Take a request whose caller has gone out of the queue, and respond to it.

        Returns:
            None; for a request that no longer waits, the request that instances run for it.
        """

    def as_run(self, request: InferRequest) -> InferRequest:
        """The request that instances run for a submitted one: itself, or the request of a sequence that wraps it."""

    def fail_all(self, error: NaiadError) -> None:
        """Respond to every request that waits with ``error``."""

    # Results, before the callers get them

    def has_run(self, instance: ModelInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> bool:
        """Take the outputs of each request of a batch that ran.

        Returns:
            Whether the instance gets its next batch before the callers get their responses; otherwise
            ``Dispatcher.freed_late`` follows.
        """

    def take_response(self, request: InferRequest, response: Response) -> Response | None:
        """Take a response of an instance; returns the response to pass on, or None."""

    def end_batches(self, batches: list[Batch]) -> None:
        """Take batches that have run, with results or without."""

    # Instances

    def finished(self, instance: ModelInstance) -> None:
        """An instance can take a batch, while requests of the one before may be open."""

    def lost(self, instance: ModelInstance, forgets: bool) -> None:
        """An instance can run nothing for a while. With ``forgets`` its model has lost its state."""

    def found(self, instance: ModelInstance) -> None:
        """An instance can run batches again, if it could not."""

    def close(self) -> None:
        """Release timers and instances; the last call."""


SchedulerFactory = Callable[[ModelSpec, asyncio.AbstractEventLoop, ModelResponder, RateLimits | None], Scheduler]
"""Makes the scheduler of a model version that has the given responder."""
