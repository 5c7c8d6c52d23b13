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
    """The run that the request of a step belongs to."""

    request: InferRequest
    is_over: bool

    def submit(self, request: MemberRequest) -> None:
        """Submit the request of a step to its model."""

    def step_responded(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Take a response of a step; ``outputs`` and ``error`` are None for the end alone."""


class MemberRequest(InferRequest):
    """The request of one step; its responses go to a run of the ensemble.

    Attributes:
        batch: the batch that it runs in; None before its model has made one, or when it makes none.
        node: the node of the compiled plan; None for a run without a compiled plan.
        trace: the step in the trace of the caller's request; None when that is not traced.
        took: for a member that is an ensemble, the nanoseconds of input, inference and output of all its steps.
    """

    __slots__ = ("_memory", "batch", "node", "run", "target", "task", "took", "trace")
    # The request of the ensemble was admitted already; refusing one of its steps would waste the work done for it.
    can_be_refused = False

    def __init__(
        self,
        run: Run,
        task: Task,
        target: Recipient,
        options: RequestOptions,
        inputs: Mapping[str, Array],
        node: PlanNode | None = None,
    ) -> None:
        # Not through super(), which counts the bytes of the tensors: the run counts them once for all their readers.
        self.run = run
        self.task = task
        self.node = node
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
        """The bytes of its inputs, counted at the first use."""
        found: int | None = getattr(self, "_memory", None)
        if found is None:
            found = self._memory = memory_of(self.inputs)
        return found

    def retarget(self, recipient: Recipient) -> None:
        self.target = recipient

    def joined(self, batch: BatchTimes) -> None:
        self.batch = batch

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Take the only response of a step."""
        self.run.step_responded(self, None if error is not None else outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Take one response of a decoupled model."""
        self.run.step_responded(self, outputs, error, final)

    def times(self, now_ns: int) -> tuple[int, int, int]:
        """The nanoseconds that its batch took for input, inference and output."""
        # The batch refers to its requests: the cycle is cut by hand.
        batch, self.batch = self.batch, None
        if self.took is not None:
            return self.took
        if batch is None:
            # The model ran it inside of ``submit``.
            return 0, now_ns - self.received_ns, 0
        input_ns = batch.gather_ns + batch.input_ns - batch.start_ns
        if not batch.end_ns:
            # Other requests of its batch still run.
            return input_ns, now_ns - batch.input_ns, 0
        return input_ns, batch.infer_ns - batch.input_ns, batch.end_ns - batch.infer_ns
