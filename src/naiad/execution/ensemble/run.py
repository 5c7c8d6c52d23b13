"""One request on its way through an ensemble: its steps are requests to other models, handed over without a copy."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final, cast

from naiad.errors import (
    BackendError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    NaiadError,
    ResponseBacklogError,
    ServerStoppingError,
)
from naiad.execution.ensemble.errors import at_inputs, in_ensemble, in_step
from naiad.execution.ensemble.flow_control import StepFlowControl
from naiad.execution.ensemble.host import EnsembleHost
from naiad.execution.ensemble.members import Members, as_outside
from naiad.execution.ensemble.step_request import MemberRequest
from naiad.execution.ensemble.tracing import RunTrace
from naiad.execution.model.cache import ModelCache
from naiad.execution.model.interface import ServingModel
from naiad.request import (
    SEQUENCE_END,
    SEQUENCE_START,
    Array,
    InferRequest,
    Outputs,
    Parameters,
    memory_of,
    request_label,
)
from naiad.scheduling.ensemble.graph import EnsembleStep
from naiad.scheduling.ensemble.plan import Plan
from naiad.scheduling.ensemble.progress import MISSING, Absent, EnsembleProgress, Task

logger = logging.getLogger("naiad")

MAX_FRAMES: Final = 4096
"""Responses of decoupled steps of one request that may wait for later steps, or for responses before them."""
SEQUENCE_PARAMETERS: Final = ("sequence_id", "sequence_start", "sequence_end")


class EnsembleRun:
    """A request and the steps that run for it. Used on the event loop only.

    Attributes:
        members: who runs its steps; ``cache`` is where its answer is kept, None for nowhere.
        steps: those that run or wait for their turn.
        input_ns, infer_ns, output_ns: what the models took, all steps together.
        trace: of the request; None when it is not traced.
        is_over: the request is answered; what still comes of its steps counts for nothing.
    """

    __slots__ = (
        "_holds", "_is_busy", "_model", "_parameters", "_plan", "_progress", "_size", "_tasks", "cache", "infer_ns",
        "input_ns", "is_over", "members", "output_ns", "request", "start_ns", "steps", "trace",
    )  # fmt: skip

    def __init__(
        self, model: EnsembleHost, members: Members, plan: Plan, request: InferRequest, cache: ModelCache | None
    ) -> None:
        self._model = model
        self.members = members
        self.cache = cache
        self._plan = plan
        self.request = request
        self._progress = EnsembleProgress(plan, is_true)
        self._holds = None if plan.is_plain else StepFlowControl()
        self._tasks: deque[Task] = deque()
        self._is_busy = False
        self._size = 0
        self._parameters: Parameters | None = None
        self.steps: set[MemberRequest] = set()
        self.is_over = False
        self.trace: RunTrace | None = None
        self.start_ns = self.input_ns = self.infer_ns = self.output_ns = 0

    def begin(self) -> None:
        """Start the steps that need nothing but the inputs of the request."""
        self.start_ns = monotonic_ns()
        inputs = self._model.as_inside(self.request.inputs)
        try:
            tasks = self._progress.begin(inputs)
        except NaiadError as error:
            self._fail(in_ensemble(self._model.name, self.request.id, error))
            return
        self._go_on(tasks)

    def resume(
        self,
        inputs: Mapping[str, Array],
        answered: Sequence[tuple[EnsembleStep, Mapping[str, Array]]],
        steps: Sequence[MemberRequest],
    ) -> None:
        """Begin with a request that has come some way along its lane (``LaneRun``).

        Args:
            inputs: as its steps see them.
            answered: the steps that were, each after those that it depends on, with their outputs.
            steps: those that run. What could run beside them is started by whatever goes on from here.
        """
        progress = self._progress
        ready = {task.step.index: task for task in progress.begin(inputs)}
        for step, outputs in answered:
            tasks = progress.wrote(ready.pop(step.index), outputs, memory_of(outputs))
            ready.update((task.step.index, task) for task in tasks)
        for request in steps:
            request.run, request.task = self, ready.pop(request.task.step.index)
            self.steps.add(request)
        self._tasks.extend(ready.values())
        self._hold(progress.size)

    def proceed(self) -> None:
        """Go on after ``resume`` where nothing runs."""
        self._go_on(())

    def cancel(self) -> None:
        """The caller gave the request up: so do its steps."""
        if not self.is_over:
            text = f"{request_label(self.request.id)}the request was cancelled by its caller"
            self._fail(CancelledError(text))

    def hold(self, backpressure_timeout_ms: int) -> None:
        """The caller does not take the responses: the steps that make them should wait; see ``Recipient.hold``."""
        if self._holds is not None:
            self._holds.hold(backpressure_timeout_ms)

    def go_on(self) -> None:
        """The caller takes the responses again."""
        if self._holds is not None:
            self._holds.go_on()

    # Steps

    def _go_on(self, tasks: Sequence[Task]) -> None:
        """Start steps, and those that may follow at once, without getting deeper for each."""
        queue = self._tasks
        queue.extend(tasks)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while not self.is_over:
                while queue and not self.is_over:
                    self._start(queue.popleft())
                if not self.is_over:
                    self._send()
                if not queue:
                    # Nothing was answered while the responses were sent.
                    break
        finally:
            self._is_busy = False

    def _start(self, task: Task) -> None:
        members, step = self.members, task.step
        values = task.frame.values
        try:
            options, shapes = members.form(step, values, self.request.options, self.request.id)
        except Exception as error:
            self.does_not_fit(step, error)
            return
        inputs = {name: values[tensor] for name, tensor, _ in step.inputs if values[tensor].__class__ is not Absent}
        for name, shape in shapes.items():
            inputs[name] = inputs[name].reshape(shape)
        request = MemberRequest(self, task, members.targets[step.index], options, inputs)
        if self.trace is not None:
            request.trace = self.trace.step()
        self.steps.add(request)
        self._model.pace.start(request)

    def does_not_fit(self, step: EnsembleStep, error: Exception) -> None:
        """The tensors of a step do not fit its model."""
        self._fail(at_inputs(self._model.name, step, self.members.graph, self._known(error)))

    def submit(self, request: MemberRequest) -> None:
        """Hand a step to its model; its turn has come."""
        step = request.task.step
        try:
            try:
                self.members.submit(request, cast(ServingModel, request.target))
            except ServerStoppingError:
                # What shares requests among versions is made anew when they change, and holds nothing.
                target = self.members.find_again(step)
                if target is request.target:
                    raise
                request.target = target
                target.submit(request)
        except Exception as error:
            self._was_refused(request, error)

    def refused(self, request: MemberRequest, error: Exception) -> None:
        """The model of a step, which ``resume`` was told of, has not taken it."""
        if not isinstance(error, ServerStoppingError):
            self._was_refused(request, error)
            return
        self.submit(request)
        if not self.is_over:
            self._go_on(())

    def _was_refused(self, request: MemberRequest, error: Exception) -> None:
        if request in self.steps:
            # It may have been answered before its model raised.
            self.steps.discard(request)
            self._model.pace.has_ended(request)
        if not self.is_over:
            self._fail(in_step(self._model.name, request.task.step, self._known(error)))

    @staticmethod
    def _known(error: Exception) -> NaiadError:
        if isinstance(error, NaiadError):
            return error
        logger.exception("a step of an ensemble failed")
        return InternalError("the step failed inside the server, see its log")

    def answered(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Take what a model sends for a step; ``outputs`` and ``error`` None: only the end."""
        if final:
            if request not in self.steps:
                return
            self.steps.discard(request)
            self._model.pace.has_ended(request)
            if request.trace is not None and self.trace is not None:
                spec = self.members.targets[request.task.step.index].spec
                version = request.target.version
                self.trace.step_ended(request, version, request.trace, request.batch, outputs, error, spec)
        if self.is_over:
            request.batch = None
            return
        if error is not None:
            request.batch = None
            self._fail(in_step(self._model.name, request.task.step, error))
            return
        try:
            if final:
                self._count(request)
            tasks = self._take(request, outputs, final)
        except Exception as wrong:
            # Whatever it is: a request that nobody ends would wait for ever.
            self._fail(in_ensemble(self._model.name, self.request.id, self._known(wrong)))
            return
        self._go_on(tasks)

    def _count(self, request: MemberRequest) -> None:
        """Add what a model took."""
        input_ns, infer_ns, output_ns = request.times(monotonic_ns())
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns

    def _take(self, request: MemberRequest, outputs: Mapping[str, Array] | None, final: bool) -> list[Task]:
        progress, task = self._progress, request.task
        tasks: list[Task] = []
        size = 0 if outputs is None else memory_of(outputs)
        if isinstance(outputs, Outputs):
            self._note(outputs.parameters)
        if not task.step.is_decoupled:
            tasks = progress.wrote(task, outputs or {}, size)
        else:
            holds = self._holds
            if outputs is not None:
                tasks = progress.responded(task, outputs, size)
                if holds is not None and not final:
                    holds.responded(request, progress.frames)
            if final:
                progress.ended(task)
                if holds is not None:
                    holds.ended(request)
        self._hold(progress.size)
        if progress.frames > MAX_FRAMES:
            self._refuse(f"{MAX_FRAMES} responses of its steps wait", task)
        if task.step.is_decoupled and self._model.budget.bytes > self._model.budget.max_bytes:
            self._refuse("the server holds as many bytes as --max-in-flight-bytes allows", task)
        return tasks

    def _refuse(self, why: str, task: Task) -> None:
        raise ResponseBacklogError(
            f"step {task.step.index} (model '{task.step.model}') sends responses faster than the steps behind it take "
            f"them: {why}, so the request was cancelled"
        )

    def _hold(self, size: int) -> None:
        """Count the tensors that are held."""
        if size != self._size:
            self._model.budget.bytes += size - self._size
            self._size = size

    # Responses

    def _send(self) -> None:
        """Send the responses that are complete, and the end once nothing runs."""
        progress = self._progress
        found = progress.responses()
        if self._plan.is_plain and not self._model.spec.decoupled:
            if found:
                self._finish(found[0])
            return
        is_end = not progress.open
        if is_end and progress.is_stuck:
            self._fail(self._deadlock(tuple(self._plan.outputs)))
            return
        for index, outputs in enumerate(found):
            is_last = is_end and index == len(found) - 1
            try:
                made = self._made(outputs)
            except NaiadError as error:
                self._fail(error)
                return
            if is_last:
                self._over()
            self._model.send_part(self, made, is_last)
            if self.is_over:
                return
        self._hold(progress.size)
        if self._holds is not None:
            self._holds.sent(progress.frames)
        if is_end:
            self._over()
            self._model.send_part(self, None, True)

    def _finish(self, outputs: Mapping[str, Any]) -> None:
        try:
            made = self._made(outputs)
        except NaiadError as error:
            self._fail(error)
            return
        self._over()
        self._model.succeeded(self, made)

    def _made(self, found: Mapping[str, Any]) -> Mapping[str, Array]:
        """What the caller gets: outputs of steps that were skipped are left out."""
        outputs: dict[str, Array] = {}
        missing = [name for name, value in found.items() if value is MISSING]
        if missing:
            raise self._deadlock(missing)
        spec = self._model.spec
        is_foreign = False
        for name, value in found.items():
            if value.__class__ is Absent:
                continue
            tensor = spec.outputs[name]
            outputs[name] = as_outside(value, tensor, spec)
            is_foreign = is_foreign or value.dtype != tensor.dtype.numpy
        parameters = self._sequence_parameters()
        return Outputs(outputs, parameters) if parameters or is_foreign else outputs

    def _deadlock(self, names: Sequence[str]) -> NaiadError:
        listed = ", ".join(f"'{name}'" for name in names)
        return BackendError(
            f"in ensemble '{self._model.name}', {request_label(self.request.id)}unexpected deadlock, at least one "
            f"output is not set while no more ensemble steps can be made: {listed}; a model did not return what its "
            "step maps"
        )

    def _note(self, parameters: Parameters) -> None:
        """Steps may tell other sequence parameters than the caller did."""
        found = {name: parameters[name] for name in SEQUENCE_PARAMETERS if name in parameters}
        if found:
            self._parameters = {**(self._parameters or {}), **found}

    def _sequence_parameters(self) -> Parameters:
        options = self.request.options
        if not options.correlation_id and not options.flags and self._parameters is None:
            return {}
        asked = {
            "sequence_id": options.correlation_id,
            "sequence_start": bool(options.flags & SEQUENCE_START),
            "sequence_end": bool(options.flags & SEQUENCE_END),
        }
        return {**asked, **(self._parameters or {})}

    # The end

    def _fail(self, error: NaiadError) -> None:
        """Answer the request with an error, once; its other steps are given up."""
        self._over()
        self._model.failed(self, error)
        for step in list(self.steps):
            self._model.pace.give_up(step)

    def _over(self) -> None:
        self.is_over = True
        self._hold(0)
        self._tasks.clear()


def is_true(condition: Array) -> bool:
    """Whether a condition holds: the same for all rows of a request. Holds on to no request.

    Raises:
        InvalidArgumentError: it is not the same for all.
    """
    if condition.dtype != bool or not condition.size or bool(condition.any()) is not bool(condition.all()):
        raise InvalidArgumentError(
            "a tensor that says whether a step runs has to be all true or all false; it is "
            f"{condition.dtype} with shape {list(condition.shape)}"
            + (": send the rows that differ as requests of their own" if condition.size > 1 else "")
        )
    return bool(condition.flat[0])
