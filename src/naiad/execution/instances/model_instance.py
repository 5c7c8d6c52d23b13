"""The contract of an instance: one executable copy of a model, as the queue and the set of its version use it.

Each kind (``InlineInstance``, ``ThreadInstance``, ``SteppedDecoupledInstance``, ``ProcessInstance`` and
``FrameworkInstance``) overrides what applies to it. No code outside depends on the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

from naiad.execution.batching.batch import Batch
from naiad.request import InferRequest
from naiad.tensor.device_tensor import Device

NO_REGIONS: Final = 1 << 63
"""As a least size in bytes: no tensor may be a ``RegionTensor``, however large it is."""


class ModelInstance(ABC):
    """One copy of a model, which runs one batch at a time.

    ``start``, ``stop`` and ``join`` are called in loading threads, everything else on the event loop.

    Attributes:
        name: of the instance, for threads, processes and the log.
        device: where it takes tensors of other models, and leaves its own; None for the processor's memory.
        may_write_inputs: its model gets tensors on the device themselves and may write to them.
        problem: why it cannot work at the moment, "" when it can.
        is_down: it cannot work, and will not for a while.
        prepare: called with a batch and the monotonic time of its start before ``run``; None where there is nothing to
            prepare. It never raises.
        is_worker: it runs in a worker process, so instances of its model start in parallel.
        sends_requests: it sends single requests with their ids to its model, not gathered batches. Such a model may
            have state of its own for each sequence, which ends with its process.
        gathers: it runs the rows of a batch's requests together, so that their number makes no difference to its model.
        runs_ahead: how many further batches it takes while it runs one (``run_ahead``).
        regions_from: the size in bytes from which on inputs may be ``RegionTensor``s. The instance writes outputs of
            that size into regions where requests want them there.
    """

    is_worker: ClassVar[bool] = False
    sends_requests: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    runs_ahead: ClassVar[int] = 0
    regions_from: ClassVar[int] = NO_REGIONS

    name: str
    device: Device | None = None
    may_write_inputs: ClassVar[bool] = False
    problem: str = ""
    is_down: bool = False
    prepare: Callable[[Batch, int], None] | None = None

    # Life

    @abstractmethod
    def start(self) -> None:
        """Create the copy and wait until it can run batches.

        Raises:
            NaiadError: it could not be created.
        """

    @abstractmethod
    def stop(self) -> None:
        """Request its end, after the batch that it runs."""

    @abstractmethod
    def join(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for that end; whether it has come."""

    def detach(self) -> None:
        """Release what belongs to the event loop, and call back who waits for its idleness; the last call there."""
        return

    @property
    def is_up(self) -> bool:
        """Whether it can take a batch when it is idle."""
        return True

    @property
    def is_idle(self) -> bool:
        """Whether ``stop`` would lose no request: none is open, or open ones are finished first."""
        return True

    def when_idle(self, callback: Callable[[], object]) -> None:
        """Call back once, as soon as the instance is idle: at once when it is. There is one who waits at most."""
        callback()

    @property
    def pid(self) -> int:
        """The number of its worker process; 0 without one."""
        return 0

    @property
    def not_ready(self) -> str:
        """The model's own reason for not being ready, "" when it is ready."""
        return ""

    @property
    def execute(self) -> Callable[..., object] | None:
        """The model's own function where it may be called on the event loop without a batch, else None."""
        return None

    # Batches

    @abstractmethod
    def run(self, batch: Batch) -> list[Batch] | None:
        """Run a batch.

        Returns:
            The batch, or its parts, with results or errors, where these are known at once; otherwise None, and the
            instance reports them later.
        """

    def run_ahead(self, batch: Batch) -> list[Batch] | None:
        """Take a batch while another one runs, and begin with it when that one is done; returns as ``run``."""
        return self.run(batch)

    def drop(self, batch: Batch) -> bool:
        """Give up a batch that ``run_ahead`` took; False when it has begun, or cannot be given up."""
        return False

    # Requests of batches that were handed over. Each does nothing for a request that is not open here.

    def cancel(self, request: InferRequest) -> None:
        """Notify the model that the caller of a request has gone."""
        return

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Make no further response to a request whose caller does not take them; see ``Recipient.pause``."""
        return

    def resume(self, request: InferRequest) -> None:
        """Make responses to a paused request again."""
        return
