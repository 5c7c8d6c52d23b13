"""A loaded model as front ends, ensembles, calling models and the code that loads it see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from naiad.config.spec import ModelSpec
from naiad.execution.model.group_queue import GroupQueue
from naiad.request import InferRequest, Recipient
from naiad.scheduling.admission import RequestBudget
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.latencies import Latencies
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from naiad.telemetry.slow.recorder import SlowRequests
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.tensor.device_tensor import Device
from naiad.worker.ipc.arena import Arena


class ServingModel(Recipient, Protocol):
    """A loaded version, or one of several that share the requests of a model (``lifecycle/traffic/routed_model.py``).

    What is remembered about it is keyed by its identity, and dropped when it is unloaded.
    """

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def problem(self) -> str:
        """Why it cannot work, "" when it can."""

    @property
    def budget(self) -> RequestBudget:
        """The bounds on requests in flight and their bytes."""

    @property
    def regions_from(self) -> int:
        """The size in bytes from which on inputs may be ``RegionTensor``s, as in ``LoadedModel``."""

    @property
    def arena(self) -> Arena | None:
        """Memory of its workers into which its large inputs may be received; None where they have none."""

    @property
    def device(self) -> Device | None:
        """The device on which it takes tensors of other models and leaves its own; None for the processor's memory."""

    @property
    def may_write_inputs(self) -> bool:
        """Whether it may write to tensors on that device which it was given, so that nobody else may have them."""

    @property
    def groups(self) -> GroupQueue | None:
        """Queues requests of several callers as one; None where they are submitted one by one."""

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The models that run its requests: itself, the versions that it stands for, or the members of an ensemble.

        Raises:
            NaiadError: a member is not loaded, or does not fit.
        """

    def check_room(self, size: int) -> None:
        """Check that a request of at least ``size`` bytes would be admitted, before its body is read.

        Raises:
            QueueFullError: it would not; that counts as a failure.
        """

    def reserve(self) -> None:
        """Reserve a place for a request that is still being read.

        The model stays loaded until ``submit_reserved`` or ``release``.
        """

    def submit_reserved(self, request: InferRequest) -> None:
        """Submit a request with a reserved place; errors as ``submit``."""

    def release(self) -> None:
        """Release a reserved place: its request does not come."""

    def note_batches(self) -> None:
        """From now on let requests note the batch that they run in (``InferRequest.joined``)."""


class LoadedVersion(ServingModel, Protocol):
    """A loaded version as its owner sees it: a model with instances, or an ensemble.

    Attributes:
        namespace: its repository, "" without namespaces.
        metrics: those that models define themselves.
        replicas: how many other processes serve a copy of it now.
    """

    namespace: str
    metrics: CustomMetrics
    replicas: int

    @property
    def statistics(self) -> ModelStatistics:
        """The counters, up to date."""

    @property
    def in_flight(self) -> int:
        """Requests that were admitted or have a reserved place, and have no final response."""

    @property
    def is_busy(self) -> bool:
        """Whether a caller waits for a response, or continues a sequence."""

    @property
    def is_drained(self) -> bool:
        """Whether no request is in flight."""

    @property
    def instance_states(self) -> dict[str, int]:
        """How many instances that serve are idle, busy and down; empty for an ensemble."""

    @property
    def process_ids(self) -> list[int]:
        """The numbers of its worker processes."""

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on, or none."""

    def keep_latencies(self, latencies: Latencies | RecentLatencies | None) -> None:
        """Note the latencies there from now on, or nowhere; ``trace_with`` has to be called again after it."""

    def record_slow(self, requests: SlowRequests) -> None:
        """Look for slow requests from now on. Called before its first request."""

    def log_batches(self, is_on: bool) -> None:
        """Log each batch from now on, or no more."""

    def stop_accepting(self) -> None:
        """Refuse new requests; admitted ones continue."""

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as no request is in flight, at once when there is none."""

    def close(self, timeout: float | None = None) -> bool:
        """End its instances, in a thread; False when one did not end in time."""

    def detach(self) -> None:
        """Release what belongs to the event loop; the last call there."""
