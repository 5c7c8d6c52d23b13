"""The request of one step of an ensemble to the model that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol

from naiad.errors import NaiadError
from naiad.request import Array, BatchTimes, InferRequest, Recipient, RequestOptions, memory_of

if TYPE_CHECKING:
    from naiad.execution.ensemble.fast_path import PlanNode
    from naiad.execution.ensemble.tracing import StepTrace
    from naiad.scheduling.ensemble.progress import Task


class Run(Protocol):
    """What a step belongs to."""

    request: InferRequest
    is_over: bool

    def submit(self, request: MemberRequest) -> None:
        """Hand a step to its model; its turn has come."""

    def answered(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Take what a model sends for a step."""


class MemberRequest(InferRequest):
    """The request of one step; its answers go to the run of the ensemble.

    Attributes:
        batch: the one that it runs in, told by its model; None where there is none.
        leg: of the lane that its request takes; None where it takes none.
        trace: what a trace of the caller's request gets to know of it; None where it is not traced.
        took: what an ensemble took for it: nanoseconds of input, inference and output, all its steps together.
    """

    __slots__ = ("_memory", "batch", "leg", "run", "target", "task", "took", "trace")
    # The request of the ensemble was accepted and holds its place; refusing its steps would waste what was done for it.
    can_be_refused = False

    def __init__(
        self,
        run: Run,
        task: Task,
        target: Recipient,
        options: RequestOptions,
        inputs: Mapping[str, Array],
        leg: PlanNode | None = None,
    ) -> None:
        # Not through super(): the run counts the tensors, once for all steps that read them.
        self.run = run
        self.task = task
        self.leg = leg
        self.target: Recipient = target
        self.options = options
        self.inputs = inputs
        self.id = run.request.id
        self.held_bytes = 0
        self.received_ns = self.queued_ns = monotonic_ns()
        self.batch: BatchTimes | None = None
        self.took: tuple[int, int, int] | None = None
        self.trace: StepTrace | None = None

    @property
    def memory(self) -> int:
        """As ``InferRequest.memory``; counted when it is asked for, once."""
        found: int | None = getattr(self, "_memory", None)
        if found is None:
            found = self._memory = memory_of(self.inputs)
        return found

    def joined(self, batch: BatchTimes) -> None:
        self.batch = batch

    def aim(self, recipient: Recipient) -> None:
        """Another version answers."""
        self.target = recipient

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Take the one answer of a step."""
        self.run.answered(self, None if error is not None else outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Take one response of a decoupled model."""
        self.run.answered(self, outputs, error, final)

    def times(self, now_ns: int) -> tuple[int, int, int]:
        """How long its model took for the input, the inference and the output, in nanoseconds; all of the batch."""
        batch, self.batch = self.batch, None
        if self.took is not None:
            return self.took
        if batch is None:
            # Answered on the spot.
            return 0, now_ns - self.received_ns, 0
        input_ns = batch.gather_ns + batch.input_ns - batch.start_ns
        if not batch.end_ns:
            # Other requests of its batch are still running.
            return input_ns, now_ns - batch.input_ns, 0
        return input_ns, batch.infer_ns - batch.input_ns, batch.end_ns - batch.infer_ns
