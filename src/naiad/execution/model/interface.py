"""Who answers the requests of a model, as those see it who read and submit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from naiad.config.spec import ModelSpec
from naiad.request import InferRequest, Recipient
from naiad.scheduling.admission import RequestBudget
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.tracing.settings_store import Sampler


class ServingModel(Recipient, Protocol):
    """A loaded version, or one of several that share the requests of a model (``lifecycle/traffic/routed_model.py``).

    Whoever remembers something of it knows it by identity, and is told when it goes.
    """

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def problem(self) -> str:
        """What keeps it from working, "" when nothing does."""

    @property
    def budget(self) -> RequestBudget:
        """How many requests there may be."""

    @property
    def regions_from(self) -> int:
        """Inputs of so many bytes and more may be a ``RegionTensor``, as in ``LoadedModel``."""

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The models that run its requests: itself, the versions that it stands for, or the members of an ensemble.

        Raises:
            NaiadError: a member is not there, or does not fit.
        """

    def check_room(self, size: int) -> None:
        """As ``LoadedModel.check_room``."""

    def expect(self) -> None:
        """As ``LoadedModel.expect``."""

    def submit_reserved(self, request: InferRequest) -> None:
        """As ``LoadedModel.submit_reserved``."""

    def release(self) -> None:
        """As ``LoadedModel.release``."""

    def tell_batches(self) -> None:
        """From now on tell requests that are steps of ensembles which batch they run in."""


class LoadedVersion(ServingModel, Protocol):
    """A loaded version as those see it who look after it: one with instances, or an ensemble."""

    namespace: str
    metrics: CustomMetrics

    @property
    def statistics(self) -> ModelStatistics:
        """The counters, up to date."""

    @property
    def in_flight(self) -> int:
        """Requests that were accepted, or are expected, and not answered for good."""

    @property
    def is_busy(self) -> bool:
        """As ``LoadedModel.is_busy``."""

    @property
    def is_drained(self) -> bool:
        """No accepted request is left."""

    @property
    def process_ids(self) -> list[int]:
        """The processes that it runs in beside the server's."""

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on, or none."""

    def stop_accepting(self) -> None:
        """Refuse new requests; those accepted go on."""

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as no accepted request is left, at once when there is none."""

    def close(self, timeout: float | None = None) -> bool:
        """End what it runs in, in a thread; False when that did not end in time."""

    def detach(self) -> None:
        """Give the loop's own resources back; the last call on the loop."""
