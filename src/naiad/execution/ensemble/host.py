"""The ensemble as the runs of its requests see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.ensemble.flow_control import InFlightLimit
from naiad.execution.ensemble.members import Members
from naiad.execution.ensemble.step_request import Run
from naiad.execution.ensemble.tracing import RunTrace
from naiad.execution.model.cache import ModelCache
from naiad.request import Array
from naiad.scheduling.admission import RequestBudget


class ActiveRun(Run, Protocol):
    """A run that its ensemble pauses, cancels and counts.

    Attributes:
        members: the models that run its steps.
        cache: where its response is cached; None for nowhere.
        start_ns: monotonic time of its first step.
        input_ns, infer_ns, output_ns: what the models took for it, all steps together.
    """

    members: Members
    cache: ModelCache | None
    start_ns: int
    input_ns: int
    infer_ns: int
    output_ns: int

    @property
    def trace(self) -> RunTrace | None:
        """Its trace; None when it is not traced."""

    def cancel(self) -> None:
        """Fail the request and cancel its steps: the caller gave it up."""

    def pause(self, backpressure_timeout_ms: int) -> None:
        """Pause the decoupled steps: the caller does not take the responses."""

    def resume(self) -> None:
        """Resume the decoupled steps."""


class EnsembleHost(Protocol):
    """The ensemble that runs belong to.

    Attributes:
        budget: bounds the bytes that all requests hold.
        in_flight_limit: how many requests of each step run at a time.
        reshapes: an input has another shape for the steps than for callers.
    """

    name: str
    spec: ModelSpec
    budget: RequestBudget
    reshapes: bool
    in_flight_limit: InFlightLimit

    def reshape_inputs(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Reshape the inputs of a request to what the steps read (``reshape``)."""

    def replace(self, run: ActiveRun) -> None:
        """Register a run in place of the one that its request had."""

    def succeeded(self, run: ActiveRun, outputs: Mapping[str, Array]) -> None:
        """Send the only response to a request."""

    def send_part(self, run: ActiveRun, outputs: Mapping[str, Array] | None, is_last: bool, is_first: bool) -> None:
        """Send one of any number of responses to a request, or with None only their end."""

    def failed(self, run: ActiveRun, error: NaiadError) -> None:
        """Send an error as the response to a request."""
