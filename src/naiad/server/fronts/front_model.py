"""A model of the engine's process, as the front ends of this process see it."""

from __future__ import annotations

from typing import Final, Protocol

from naiad.config.spec import ModelSpec
from naiad.errors import InternalError
from naiad.execution.model.interface import ServingModel
from naiad.request import InferRequest
from naiad.scheduling.admission import RequestBudget
from naiad.worker.ipc.arena import Arena

NO_REGIONS: Final = 1 << 62
"""No input is as large: requests with regions of clients go to the engine as they are."""


class Submitter(Protocol):
    """What sends requests to the engine's process."""

    budget: RequestBudget

    def submit(self, model: FrontModel, request: InferRequest) -> None:
        """Send a request; errors as ``ServingModel.submit``."""

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request that was sent."""


class FrontModel:
    """A ``ServingModel`` that sends its requests to the engine's process. The engine admits and counts them.

    Args:
        number: under which the engine knows the model, its name and the version that callers ask for.
        version: the version that serves.
        arena: where its large inputs are received; the engine's process maps it.
    """

    problem = ""
    regions_from = NO_REGIONS
    device = None
    groups = None
    may_write_inputs = False

    def __init__(
        self, submitter: Submitter, number: int, spec: ModelSpec, version: int, arena: Arena | None = None
    ) -> None:
        self.number = number
        self.name = spec.name
        self.spec = spec
        self.version = version
        self.arena = arena
        self._submitter = submitter

    def close(self) -> None:
        """Receive no more inputs in its arena: the model is gone."""
        if self.arena is not None:
            self.arena.close()

    @property
    def budget(self) -> RequestBudget:
        """The bounds of this process."""
        return self._submitter.budget

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The model itself."""
        return (self,)

    def of_version(self, version: int) -> FrontModel:
        """The same model with the version that has served a request."""
        return self if version == self.version else FrontModel(self._submitter, self.number, self.spec, version)

    def check_room(self, size: int) -> None:
        """Check that this process has room for a request of ``size`` bytes; errors as ``ServingModel``."""
        self._submitter.budget.check(size)

    def submit(self, request: InferRequest) -> None:
        """Send a request to the engine."""
        self._submitter.submit(self, request)

    def reserve(self) -> None:
        """Nothing to reserve: the engine knows the model by its name when the request arrives."""

    def submit_reserved(self, request: InferRequest) -> None:
        """Send a request to the engine."""
        self._submitter.submit(self, request)

    def release(self) -> None:
        """Nothing was reserved."""

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request."""
        self._submitter.cancel(request)

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Requests with many responses go to the engine as they are, so none is paused here."""
        raise InternalError(f"a request to '{self.name}' with one response cannot be paused")

    def resume(self, request: InferRequest) -> None:
        """No request was paused."""

    def note_batches(self) -> None:
        """Traced requests are noted in the engine's process."""
