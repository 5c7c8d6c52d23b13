"""A request of an ensemble that follows a compiled plan.

An error, a response with parameters, a missing output or a cancelled request need decisions. The run then switches to
an ``EnsembleRun``, which takes over the steps that have responded and those that still run.
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
from naiad.request import Array, DeviceOptions, InferRequest, RequestOptions, memory_of

if TYPE_CHECKING:
    from naiad.execution.model.interface import ServingModel


class FastRun:
    """A request and the steps that run for it. Used on the event loop only.

    Attributes:
        steps: the requests of the steps that run.
        is_over: a response was sent, or an ``EnsembleRun`` has taken over.
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
        compiled: CompiledPlan,
        request: InferRequest,
        cache: ModelCache | None,
    ) -> None:
        self._model = model
        self.members = members
        self.cache = cache
        self._plan = compiled
        self.request = request
        self.steps: list[MemberRequest] = []
        self.is_over = self._is_busy = False
        self._left = len(compiled.nodes)
        self._waits = None if compiled.waits is None else compiled.waits.copy()
        self._ready: list[PlanNode] | None = None
        self._size = self.input_ns = self.infer_ns = self.output_ns = 0

    def begin(self) -> None:
        """Start the steps that read nothing but inputs of the request."""
        self.start_ns = monotonic_ns()
        compiled, inputs = self._plan, self.request.inputs
        if self._model.reshapes:
            inputs = self._model.reshape_inputs(inputs)
        values = self._values = compiled.values.copy()
        for name, number in compiled.inputs:
            values[number] = inputs[name]
        self._start_all(compiled.first)

    def cancel(self) -> None:
        """Fail the request and cancel its steps: the caller gave it up."""
        self._switch().cancel()

    def pause(self, backpressure_timeout_ms: int) -> None:
        """Do nothing: the request has a single response."""

    def resume(self) -> None:
        """Do nothing: the request has a single response."""

    # Steps

    def _start_all(self, nodes: Sequence[PlanNode]) -> None:
        """Start nodes, and the nodes that follow those that respond at once."""
        if self._is_busy:
            # A member responded inside of its ``submit``. The loop below takes its followers from here: a recursion
            # would be as deep as the graph.
            self._ready = [*(self._ready or ()), *nodes]
            return
        self._is_busy = True
        for node in nodes:
            self._start(node)
            if self.is_over:
                return
        while self._ready:
            self._start(self._ready.pop(0))
            if self.is_over:
                return
        self._is_busy = False
        if not self._left:
            self._finish()

    def _start(self, node: PlanNode) -> None:
        values = self._values
        # By identity: an equal dtype that is another object only takes the longer way.
        if node.name and (value := values[node.tensor]).dtype is node.dtype and value.shape == node.shape:
            options, inputs = node.options, {node.name: value}
        else:
            try:
                options, inputs = self._make_inputs(node)
            except Exception as error:
                self._switch().does_not_fit(node.task.step, error)
                return
        request = MemberRequest(self, node.task, node.target, options, inputs, node)
        self.steps.append(request)
        self.submit(request)

    def submit(self, request: MemberRequest) -> None:
        """Hand a step to its model."""
        try:
            if self.members.has_reserved:
                self.members.submit(request, cast("ServingModel", request.target))
            else:
                request.target.submit(request)
        except Exception as error:
            # Its model may have responded before it raised, and the run may have switched since.
            run = self._switch() if request in self.steps else request.run
            if isinstance(run, EnsembleRun):
                run.refused(request, error)

    def step_responded(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Take the response of a step."""
        node = request.node
        if node is None or request not in self.steps:
            return
        # ``Outputs`` have parameters, which the ensemble passes on or acts on.
        if error is not None or outputs.__class__ is not dict or not final or not self._take_outputs(node, outputs):
            self._switch().step_responded(request, outputs, error, final)
            return
        self.steps.remove(request)
        self._count(request)
        self._left -= 1
        if self._left:
            followers, waits = node.followers, self._waits
            self._start_all(followers if waits is None else [f for f in followers if self._is_ready(f, waits)])
        elif not self._is_busy:
            self._finish()

    def _take_outputs(self, node: PlanNode, outputs: Mapping[str, Array]) -> bool:
        """Store the outputs of a step; False when one is missing or has no size."""
        try:
            size = memory_of(outputs)
        except Exception:
            # Objects that are no bytes: ``EnsembleRun`` runs into them again and raises the error. No output is stored
            # yet, which tells ``_switch`` that the step still runs.
            return False
        values = self._values
        for name, tensor in node.outputs:
            value = outputs.get(name)
            if value is None:
                return False
            values[tensor] = value
        self._size += size
        self._model.budget.bytes += size
        return True

    @staticmethod
    def _is_ready(node: PlanNode, waits: list[int]) -> bool:
        """Count a response that a node waits for; whether it was the last one."""
        waits[node.index] -= 1
        return not waits[node.index]

    def _count(self, request: MemberRequest) -> None:
        """Add the time that a model took."""
        batch = request.batch
        if batch is not None and batch.end_ns and request.took is None:
            # The batch refers to its requests: the cycle is cut by hand.
            request.batch = None
            self.input_ns += batch.gather_ns + batch.input_ns - batch.start_ns
            self.infer_ns += batch.infer_ns - batch.input_ns
            self.output_ns += batch.end_ns - batch.infer_ns
            return
        input_ns, infer_ns, output_ns = request.times(monotonic_ns())
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns

    def _make_inputs(self, node: PlanNode) -> tuple[RequestOptions, dict[str, Array]]:
        """The options of the request of a step, and its inputs; errors as ``Members.schema``."""
        values, request = self._values, self.request
        options, shapes = self.members.schema(node.task.step, values, request.options, request.id)
        if node.resident is not None:
            options = DeviceOptions(options, node.resident)
        inputs = {name: values[tensor] for name, tensor in node.inputs}
        if node.name and not shapes:
            node.remember(values[node.tensor], options)
        for name, shape in shapes.items():
            inputs[name] = inputs[name].reshape(shape)
        return options, inputs

    # The end

    def _finish(self) -> None:
        values, outputs = self._values, {}
        for name, tensor, dtype, rank in self._plan.outputs:
            value = values[tensor]
            if value.dtype is not dtype or value.ndim != rank:
                # It needs a reshape, or the response has to say that its datatype is another one.
                self._switch().proceed()
                return
            outputs[name] = value
        self.is_over = True
        self._model.budget.bytes -= self._size
        self._model.succeeded(self, outputs)

    def _switch(self) -> EnsembleRun:
        """Hand the request and its steps to an ``EnsembleRun``."""
        self.is_over = True
        model, compiled, values = self._model, self._plan, self._values
        # The ``EnsembleRun`` counts the same tensors itself.
        model.budget.bytes -= self._size
        run = EnsembleRun(model, self.members, compiled.plan, self.request, self.cache)
        run.start_ns = self.start_ns
        run.input_ns, run.infer_ns, run.output_ns = self.input_ns, self.infer_ns, self.output_ns
        steps, self.steps = self.steps, []
        inputs = {name: values[number] for name, number in compiled.inputs}
        completed = [
            (node.task.step, {name: values[tensor] for name, tensor in node.outputs})
            for node in compiled.nodes
            # Some outputs of a step that still runs may be stored already, but not all.
            if all(values[tensor] is not None for _, tensor in node.outputs)
        ]
        run.take_over(inputs, completed, steps)
        model.replace(run)
        return run
