"""An ordinary request on its way through an ensemble, along its lane.

Whatever is out of the ordinary makes it an ``EnsembleRun``, at the place that it has come to: an error, a response with
parameters, an output that a model did not give, a caller who gives up. That one then goes on by the rules in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, ClassVar, cast

from naiad.errors import NaiadError
from naiad.execution.ensemble.fast_path import CompiledPlan, PlanNode
from naiad.execution.ensemble.host import EnsembleHost
from naiad.execution.ensemble.members import Members
from naiad.execution.ensemble.run import EnsembleRun
from naiad.execution.ensemble.step_request import MemberRequest
from naiad.execution.ensemble.tracing import RunTrace
from naiad.execution.model.cache import ModelCache
from naiad.request import Array, InferRequest, RequestOptions, memory_of

if TYPE_CHECKING:
    from naiad.execution.model.interface import ServingModel


class FastRun:
    """A request and the steps that run for it, as ``EnsembleRun``. Used on the event loop only.

    Attributes:
        is_over: it is answered, or has become an ``EnsembleRun``.
    """

    __slots__ = (
        "_is_busy",
        "_left",
        "_model",
        "_plan",
        "_ready",
        "_size",
        "_values",
        "_waits",
        "cache",
        "infer_ns",
        "input_ns",
        "is_over",
        "members",
        "output_ns",
        "request",
        "start_ns",
        "steps",
    )  # fmt: skip
    trace: ClassVar[RunTrace | None] = None

    def __init__(
        self,
        model: EnsembleHost,
        members: Members,
        lane: CompiledPlan,
        request: InferRequest,
        cache: ModelCache | None,
    ) -> None:
        self._model = model
        self.members = members
        self.cache = cache
        self._plan = lane
        self.request = request
        self.steps: list[MemberRequest] = []
        self.is_over = self._is_busy = False
        self._left = len(lane.legs)
        self._waits = None if lane.waits is None else lane.waits.copy()
        self._ready: list[PlanNode] | None = None
        self._size = self.input_ns = self.infer_ns = self.output_ns = 0

    def begin(self) -> None:
        """Start the steps that need nothing but the inputs of the request."""
        self.start_ns = monotonic_ns()
        lane, inputs = self._plan, self.request.inputs
        if self._model.reshapes:
            inputs = self._model.as_inside(inputs)
        values = self._values = lane.values.copy()
        for name, number in lane.inputs:
            values[number] = inputs[name]
        self._go_on(lane.first)

    def cancel(self) -> None:
        """The caller gave the request up."""
        self._become().cancel()

    def hold(self, backpressure_timeout_ms: int) -> None:
        """Nothing: there is one response."""

    def go_on(self) -> None:
        """Nothing: there is one response."""

    # Steps

    def _go_on(self, legs: Sequence[PlanNode]) -> None:
        """Start steps, and those that may follow at once, without getting deeper for each."""
        if self._is_busy:
            self._ready = [*(self._ready or ()), *legs]
            return
        self._is_busy = True
        for leg in legs:
            self._start(leg)
            if self.is_over:
                return
        while self._ready:
            self._start(self._ready.pop(0))
            if self.is_over:
                return
        self._is_busy = False
        if not self._left:
            self._finish()

    def _start(self, leg: PlanNode) -> None:
        values = self._values
        if leg.name and (value := values[leg.tensor]).dtype is leg.dtype and value.shape == leg.shape:
            options, inputs = leg.options, {leg.name: value}
        else:
            try:
                options, inputs = self._formed(leg)
            except Exception as error:
                self._become().does_not_fit(leg.task.step, error)
                return
        request = MemberRequest(self, leg.task, leg.target, options, inputs, leg)
        self.steps.append(request)
        self.submit(request)

    def submit(self, request: MemberRequest) -> None:
        """Hand a step to its model."""
        try:
            if self.members.holds:
                self.members.submit(request, cast("ServingModel", request.target))
            else:
                request.target.submit(request)
        except Exception as error:
            # It may have been answered before, and be part of another run.
            run = self._become() if request in self.steps else request.run
            if isinstance(run, EnsembleRun):
                run.refused(request, error)

    def answered(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Take the answer of a step."""
        leg = request.leg
        if leg is None or request not in self.steps:
            return
        if error is not None or outputs.__class__ is not dict or not final or not self._takes(leg, outputs):
            self._become().answered(request, outputs, error, final)
            return
        self.steps.remove(request)
        self._count(request)
        self._left -= 1
        if self._left:
            followers, waits = leg.followers, self._waits
            self._go_on(followers if waits is None else [f for f in followers if self._is_next(f, waits)])
        elif not self._is_busy:
            self._finish()

    def _takes(self, leg: PlanNode, outputs: Mapping[str, Array]) -> bool:
        """Take the outputs of a step; False when there is something about them."""
        try:
            size = memory_of(outputs)
        except Exception:
            # Objects that are no bytes; the run that this one becomes meets them again and says so. Nothing is taken
            # of the step yet, by which ``_become`` knows that it still runs.
            return False
        values = self._values
        for name, tensor in leg.outputs:
            value = outputs.get(name)
            if value is None:
                return False
            values[tensor] = value
        self._size += size
        self._model.budget.bytes += size
        return True

    @staticmethod
    def _is_next(leg: PlanNode, waits: list[int]) -> bool:
        """One of those that a leg waits for has answered: whether it was the last."""
        waits[leg.index] -= 1
        return not waits[leg.index]

    def _count(self, request: MemberRequest) -> None:
        """Add what a model took."""
        batch = request.batch
        if batch is not None and batch.end_ns and request.took is None:
            request.batch = None
            self.input_ns += batch.gather_ns + batch.input_ns - batch.start_ns
            self.infer_ns += batch.infer_ns - batch.input_ns
            self.output_ns += batch.end_ns - batch.infer_ns
            return
        input_ns, infer_ns, output_ns = request.times(monotonic_ns())
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns

    def _formed(self, leg: PlanNode) -> tuple[RequestOptions, dict[str, Array]]:
        """What the request of a step asks for, and its inputs; errors as ``Members.form``."""
        values, request = self._values, self.request
        options, shapes = self.members.form(leg.task.step, values, request.options, request.id)
        inputs = {name: values[tensor] for name, tensor in leg.inputs}
        if leg.name and not shapes:
            leg.know(values[leg.tensor], options)
        for name, shape in shapes.items():
            inputs[name] = inputs[name].reshape(shape)
        return options, inputs

    # The end

    def _finish(self) -> None:
        values, outputs = self._values, {}
        for name, tensor, dtype, rank in self._plan.outputs:
            value = values[tensor]
            if value.dtype is not dtype or value.ndim != rank:
                # It gets another shape, or the response says that its datatype is another one.
                self._become().proceed()
                return
            outputs[name] = value
        self.is_over = True
        self._model.budget.bytes -= self._size
        self._model.succeeded(self, outputs)

    def _become(self) -> EnsembleRun:
        """The same request as an ``EnsembleRun``, which has its steps from now on."""
        self.is_over = True
        model, lane, values = self._model, self._plan, self._values
        model.budget.bytes -= self._size
        run = EnsembleRun(model, self.members, lane.plan, self.request, self.cache)
        run.start_ns = self.start_ns
        run.input_ns, run.infer_ns, run.output_ns = self.input_ns, self.infer_ns, self.output_ns
        steps, self.steps = self.steps, []
        inputs = {name: values[number] for name, number in lane.inputs}
        answered = [
            (leg.task.step, {name: values[tensor] for name, tensor in leg.outputs})
            for leg in lane.legs
            # Of a step that still runs some may be known, but not all.
            if all(values[tensor] is not None for _, tensor in leg.outputs)
        ]
        run.resume(inputs, answered, steps)
        model.replace(run)
        return run
