"""A request of an ensemble, by all rules: its steps are requests to other models, submitted without a copy."""

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
from naiad.execution.ensemble.members import Members, reshape_output
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
from naiad.tensor.device_tensor import on_host

logger = logging.getLogger("naiad")

MAX_FRAMES: Final = 4096
"""The most responses of decoupled steps of one request that wait for later steps, or for responses before them."""
SEQUENCE_PARAMETERS: Final = ("sequence_id", "sequence_start", "sequence_end")


class EnsembleRun:
    """A request and the steps that run for it. Used on the event loop only.

    Attributes:
        members: the models that run its steps.
        cache: where its response is cached; None for nowhere.
        steps: the requests of the steps that run, or wait for the in-flight limit.
        input_ns, infer_ns, output_ns: what the models took for all steps together.
        trace: of the request; None when it is not traced.
        is_over: the last response was sent; responses of its steps are dropped from then on.
    """

    __slots__ = (
        "_flow", "_has_sent", "_has_taken_over", "_is_busy", "_model", "_parameters", "_plan", "_progress", "_size",
        "_tasks", "cache", "infer_ns", "input_ns", "is_over", "members", "output_ns", "request", "start_ns", "steps",
        "trace",
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
        self._flow = None if plan.is_plain else StepFlowControl()
        self._tasks: deque[Task] = deque()
        self._is_busy = False
        self._size = 0
        self._parameters: Parameters | None = None
        self.steps: set[MemberRequest] = set()
        self.is_over = self._has_sent = self._has_taken_over = False
        self.trace: RunTrace | None = None
        self.start_ns = self.input_ns = self.infer_ns = self.output_ns = 0

    def begin(self) -> None:
        """Start the steps that read nothing but inputs of the request."""
        self.start_ns = monotonic_ns()
        inputs = self._model.reshape_inputs(self.request.inputs)
        try:
            tasks = self._progress.begin(inputs)
        except NaiadError as error:
            self._fail(in_ensemble(self._model.name, self.request.id, error))
            return
        self._advance(tasks)

    def take_over(
        self,
        inputs: Mapping[str, Array],
        completed: Sequence[tuple[EnsembleStep, Mapping[str, Array]]],
        steps: Sequence[MemberRequest],
    ) -> None:
        """Begin with a request whose first steps were run by a ``FastRun``.

        Args:
            inputs: in the shapes that the steps read.
            completed: the steps that have responded, with their outputs, each after the steps that it depends on.
            steps: the requests that run. Steps that could run beside them start with the next call of
                ``step_responded`` or ``proceed``.
        """
        self._has_taken_over = True
        progress = self._progress
        ready = {task.step.index: task for task in progress.begin(inputs)}
        for step, outputs in completed:
            tasks = progress.wrote(ready.pop(step.index), outputs, memory_of(outputs))
            ready.update((task.step.index, task) for task in tasks)
        for request in steps:
            # The step's response goes to this run from now on.
            request.run, request.task = self, ready.pop(request.task.step.index)
            self.steps.add(request)
        self._tasks.extend(ready.values())
        self._count_bytes(progress.size)

    def proceed(self) -> None:
        """Start the next steps after ``take_over`` when no step runs."""
        self._advance(())

    def cancel(self) -> None:
        """Fail the request and cancel its steps: the caller gave it up."""
        if not self.is_over:
            text = f"{request_label(self.request.id)}the request was cancelled by its caller"
            self._fail(CancelledError(text))

    def pause(self, backpressure_timeout_ms: int) -> None:
        """Pause the decoupled steps: the caller does not take the responses; see ``Recipient.pause``."""
        if self._flow is not None:
            self._flow.pause(backpressure_timeout_ms)

    def resume(self) -> None:
        """Resume the decoupled steps: the caller takes the responses again."""
        if self._flow is not None:
            self._flow.resume()

    # Steps

    def _advance(self, tasks: Sequence[Task]) -> None:
        """Start steps, and the steps that follow those that respond at once."""
        queue = self._tasks
        queue.extend(tasks)
        if self._is_busy:
            # A member responded inside of its ``submit``. The loop below takes its followers from the queue: a
            # recursion would be as deep as the graph.
            return
        self._is_busy = True
        try:
            while not self.is_over:
                while queue and not self.is_over:
                    self._start(queue.popleft())
                if not self.is_over:
                    self._send()
                if not queue:
                    # No step has responded while the responses were sent.
                    break
        finally:
            self._is_busy = False

    def _start(self, task: Task) -> None:
        members, step = self.members, task.step
        values = task.frame.values
        try:
            options, shapes = members.schema(step, values, self.request.options, self.request.id)
        except Exception as error:
            self.does_not_fit(step, error)
            return
        inputs = {name: values[tensor] for name, tensor, _ in step.inputs if values[tensor].__class__ is not Absent}
        if self._has_taken_over:
            # A ``FastRun`` may have left tensors on a device.
            try:
                inputs = on_host(inputs)
            except Exception as error:
                self._fail(in_step(self._model.name, step, self._known(error)))
                return
        for name, shape in shapes.items():
            inputs[name] = inputs[name].reshape(shape)
        request = MemberRequest(self, task, members.targets[step.index], options, inputs)
        if self.trace is not None:
            request.trace = self.trace.step()
        self.steps.add(request)
        self._model.in_flight_limit.start(request)

    def does_not_fit(self, step: EnsembleStep, error: Exception) -> None:
        """Fail the request, for the tensors of a step do not fit its model."""
        self._fail(at_inputs(self._model.name, step, self.members.graph, self._known(error)))

    def submit(self, request: MemberRequest) -> None:
        """Submit the request of a step to its model."""
        step = request.task.step
        try:
            try:
                self.members.submit(request, cast(ServingModel, request.target))
            except ServerStoppingError:
                # A routed model is replaced whenever its versions change, and takes no requests afterwards.
                target = self.members.find_again(step)
                if target is request.target:
                    raise
                request.target = target
                # It need not be on the device of the one before.
                request.inputs = on_host(request.inputs)
                target.submit(request)
        except Exception as error:
            self._was_refused(request, error)

    def refused(self, request: MemberRequest, error: Exception) -> None:
        """Handle a request of ``take_over`` that its model has refused."""
        if not isinstance(error, ServerStoppingError):
            self._was_refused(request, error)
            return
        self.submit(request)
        if not self.is_over:
            self._advance(())

    def _was_refused(self, request: MemberRequest, error: Exception) -> None:
        if request in self.steps:
            # Its model may have responded before it raised.
            self.steps.discard(request)
            self._model.in_flight_limit.has_ended(request)
        if not self.is_over:
            self._fail(in_step(self._model.name, request.task.step, self._known(error)))

    @staticmethod
    def _known(error: Exception) -> NaiadError:
        if isinstance(error, NaiadError):
            return error
        logger.exception("a step of an ensemble failed")
        return InternalError("the step failed inside the server, see its log")

    def step_responded(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Take a response of a step; ``outputs`` and ``error`` are None for the end alone."""
        if final:
            if request not in self.steps:
                return
            self.steps.discard(request)
            self._model.in_flight_limit.has_ended(request)
            if request.trace is not None and self.trace is not None:
                spec = self.members.targets[request.task.step.index].spec
                version = request.target.version
                self.trace.step_ended(request, version, request.trace, request.batch, outputs, error, spec)
        if self.is_over:
            # The batch refers to its requests: the cycle is cut by hand.
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
            # Of any class: a request that nobody ends would wait for ever.
            self._fail(in_ensemble(self._model.name, self.request.id, self._known(wrong)))
            return
        self._advance(tasks)

    def _count(self, request: MemberRequest) -> None:
        """Add the time that a model took."""
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
            flow = self._flow
            if outputs is not None:
                tasks = progress.responded(task, outputs, size)
                if flow is not None and not final:
                    flow.responded(request, progress.frames)
            if final:
                progress.ended(task)
                if flow is not None:
                    flow.ended(request)
        self._count_bytes(progress.size)
        if progress.frames > MAX_FRAMES:
            self._refuse(f"{MAX_FRAMES} responses of its steps wait", task)
        # Only decoupled steps can fill the memory without further requests.
        if task.step.is_decoupled and self._model.budget.bytes > self._model.budget.max_bytes:
            self._refuse("the server holds as many bytes as --max-in-flight-bytes allows", task)
        return tasks

    def _refuse(self, why: str, task: Task) -> None:
        raise ResponseBacklogError(
            f"step {task.step.index} (model '{task.step.model}') sends responses faster than the steps behind it take "
            f"them: {why}, so the request was cancelled"
        )

    def _count_bytes(self, size: int) -> None:
        """Count the bytes of the tensors that the request keeps."""
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
                made = self._make_response(outputs)
            except NaiadError as error:
                self._fail(error)
                return
            if is_last:
                self._over()
            is_first, self._has_sent = not self._has_sent, True
            self._model.send_part(self, made, is_last, is_first)
            # The caller may have cancelled within the response.
            if self.is_over:
                return
        self._count_bytes(progress.size)
        if self._flow is not None:
            self._flow.sent(progress.frames)
        if is_end:
            self._over()
            self._model.send_part(self, None, True, not self._has_sent)

    def _finish(self, outputs: Mapping[str, Any]) -> None:
        try:
            made = self._make_response(outputs)
        except NaiadError as error:
            self._fail(error)
            return
        self._over()
        self._model.succeeded(self, made)

    def _make_response(self, found: Mapping[str, Any]) -> Mapping[str, Array]:
        """The outputs for the caller, without those of steps that were skipped."""
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
            outputs[name] = reshape_output(value, tensor, spec, name in self.members.unbatched)
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
        """Keep sequence parameters of a step's response: they replace those of the caller."""
        found = {name: parameters[name] for name in SEQUENCE_PARAMETERS if name in parameters}
        if found:
            self._parameters = {**(self._parameters or {}), **found}

    def _sequence_parameters(self) -> Parameters:
        options = self.request.options
        if not options.correlation_id and not options.flags and self._parameters is None:
            return {}
        own = {
            "sequence_id": options.correlation_id,
            "sequence_start": bool(options.flags & SEQUENCE_START),
            "sequence_end": bool(options.flags & SEQUENCE_END),
        }
        return {**own, **(self._parameters or {})}

    # The end

    def _fail(self, error: NaiadError) -> None:
        """Send an error as the response, once, and cancel the other steps."""
        # First: ``is_over`` drops the responses of the steps that are cancelled below.
        self._over()
        self._model.failed(self, error)
        # A copy: a step that is cancelled may respond at once and leave the set.
        for step in list(self.steps):
            self._model.in_flight_limit.give_up(step)

    def _over(self) -> None:
        self.is_over = True
        self._count_bytes(0)
        self._tasks.clear()


def is_true(condition: Array) -> bool:
    """Whether a condition is true; it has to be the same for all rows of a request. Keeps no reference to a request.

    Raises:
        InvalidArgumentError: it is not the same for all rows.
    """
    if condition.dtype != bool or not condition.size or bool(condition.any()) is not bool(condition.all()):
        raise InvalidArgumentError(
            "a tensor that says whether a step runs has to be all true or all false; it is "
            f"{condition.dtype} with shape {list(condition.shape)}"
            + (": send the rows that differ as requests of their own" if condition.size > 1 else "")
        )
    return bool(condition.flat[0])
