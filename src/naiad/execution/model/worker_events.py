"""What the processes of a model version tell: answers, batches that are done, and their own coming and going."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns

from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, UnavailableError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.decoupled import SteppedDecoupledInstance
from naiad.execution.model.accounting import count_one
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.instance_set import AnyInstance
from naiad.execution.model.responder import ModelResponder, send_part
from naiad.execution.model.response_times import ResponseTimes
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import Array, InferRequest, request_label
from naiad.worker.ipc.frames import FLAG_FINAL, FLAG_OWN, FLAG_RESCHEDULE


class WorkerEvents:
    """Takes what the processes of one model version tell, as ``child_answers.Answers``. The event loop alone uses it.

    Attributes:
        held: responses that are not final yet, of requests that get one.
        instances: all of the model; given once they are made.
    """

    def __init__(self, spec: ModelSpec, answers: ModelResponder, queue: Dispatcher) -> None:
        self._name = spec.name
        self._decoupled = spec.decoupled
        self._answers = answers
        self._queue = queue
        self._times = ResponseTimes(answers.statistics)
        self.held: dict[InferRequest, Response] = {}
        self.instances: Sequence[AnyInstance] = ()

    def worker_answered(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Take the one response of each request of a batch. The instance gets its next batch before that."""
        self.worker_ready(instance)
        self._answer(batch, outputs)

    def _answer(self, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        answers = self._answers
        answered_ns = answers.count(batch)
        answers.respond_each(batch.requests, outputs)
        if answers.tracer is not None:
            answers.trace(answers.tracer, batch.requests, batch, answered_ns, outputs)
        answers.tell_when_drained()

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take one response of a request that runs in a process."""
        if self._decoupled:
            self._respond_part(request, response, batch)
            return
        answers = self._answers
        if not response.final:
            # What comes until the last one is the model's time.
            self.held[request] = response._replace(output_ns=0)
            return
        held = self.held.pop(request, None) if self.held else None
        if held is not None and response.outputs is None:
            if response.error is not None:
                # What the model sent before it failed is the answer, as in the reference.
                answers.log_error(request, response.error)
            response = held._replace(flags=held.flags | FLAG_FINAL | (response.flags & FLAG_RESCHEDULE))
        if response.flags & FLAG_RESCHEDULE:
            self._queue.push_again(request)
        elif response.error is not None and not response.flags & FLAG_OWN:
            answers.fail(request, response.error)
            if answers.tracer is not None:
                answers.trace(answers.tracer, (request,), batch, monotonic_ns(), (None,), response.error, False)
        elif response.outputs is None and response.error is None:
            text = f"{request_label(request.id)}model '{self._name}' ended the request without a response"
            answers.fail(request, BackendError(text))
        else:
            # An error that the model chose as its answer counts as a success: it did what it was asked for.
            output_ns = monotonic_ns() - response.output_ns if response.output_ns else 0
            answered_ns = count_one(answers.statistics, request, batch, answers.clock.wall_ms(), output_ns)
            answers.let_go(request)
            if response.error is not None:
                answers.log_error(request, response.error)
            answers.respond(request, {} if response.outputs is None else response.outputs, response.error)
            if answers.tracer is not None:
                answers.trace(answers.tracer, (request,), batch, answered_ns, (response.outputs,), response.error)
        answers.tell_when_drained()

    def _respond_part(self, request: InferRequest, response: Response, batch: Batch) -> None:
        answers = self._answers
        if response.final and response.flags & FLAG_RESCHEDULE:
            self._times.forget(request)
            self._queue.push_again(request)
            return
        output_ns = self._times.count(request, response, batch)
        if response.final:
            answers.let_go(request)
            if response.error is None or response.flags & FLAG_OWN:
                count_one(answers.statistics, request, batch, answers.clock.wall_ms(), output_ns)
            else:
                answers.statistics.count_failure(response.error.reason, monotonic_ns() - request.received_ns)
        elif response.outputs is None and response.error is None:
            # It is empty: nothing is sent.
            return
        send_part(request, response.outputs, response.error, response.final)
        if response.final:
            if answers.tracer is not None:
                answers.tracer.trace((request,), batch, monotonic_ns(), (response.outputs,), response.error)
            answers.tell_when_drained()

    def worker_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """An instance is free for the next batch."""
        self._answers.count_execution(batch)
        self.worker_ready(instance)

    def step_finished(self, instance: SteppedDecoupledInstance, batch: Batch) -> None:
        """An instance on the loop is free for the next batch."""
        self._answers.count_execution(batch)
        self._queue.freed(instance)

    def framework_finished(self, instance: ProcessInstance, batches: list[Batch], is_free: bool) -> None:
        """Batches of a framework's process are done."""
        if is_free:
            # It gets its next batch before the callers get their answers.
            self._queue.freed(instance)
        self._answers.settle(batches)

    def worker_died(self, instance: ProcessInstance) -> None:
        """An instance can take no batch for now."""
        self._queue.take_back(instance)

    def worker_down(self, instance: ProcessInstance) -> None:
        """An instance will have no process for a while. Nobody waits for it when no other is left."""
        serving = [i for i in self.instances if i not in self._queue.passive]
        if not all(isinstance(i, ProcessInstance) and i.is_down for i in serving):
            return
        text = f"Stub process '{instance.name}' is not healthy. {instance.problem}"
        self._queue.outage = UnavailableError(text)
        self._queue.fail_all(self._queue.outage)

    def worker_ready(self, instance: ProcessInstance) -> None:
        """An instance can take a batch again."""
        if instance not in self._queue.passive:
            self._queue.outage = None
        self._queue.freed(instance)
