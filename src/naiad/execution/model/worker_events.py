"""The events of a model version's instances: responses, finished batches, and workers that die and restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns

from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, UnavailableError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.accounting import count_one
from naiad.execution.model.responder import ModelResponder, send_part
from naiad.execution.model.response_times import ResponseTimes
from naiad.execution.model.scheduler import Scheduler
from naiad.execution.model.tracing import note_response
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import Array, InferRequest, request_label
from naiad.worker.ipc.frames import FLAG_FINAL, FLAG_OWN, FLAG_RESCHEDULE


class WorkerEvents:
    """Takes the events of one model version's workers and stepped instances. Belongs to the event loop.

    Attributes:
        held: responses without the final flag, of requests that get one response.
        instances: all of the model; given once they are made.
    """

    def __init__(self, spec: ModelSpec, responder: ModelResponder, scheduler: Scheduler) -> None:
        self._name = spec.name
        self._decoupled = spec.decoupled
        self._responder = responder
        self._scheduler = scheduler
        self._queue = scheduler.dispatcher
        self._times = ResponseTimes(responder.statistics)
        self.held: dict[InferRequest, Response] = {}
        self.instances: Sequence[ModelInstance] = ()

    def worker_completed(self, instance: ModelInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Take the one response of each request of a batch."""
        if self._scheduler.has_run(instance, batch, outputs):
            # The instance gets its next batch before the callers get their responses, and runs it meanwhile.
            self.worker_ready(instance)
        else:
            self._queue.freed_late(instance)
        responder = self._responder
        responded_ns = responder.count(batch)
        responder.respond_each(batch.requests, outputs)
        if responder.tracer is not None:
            responder.trace(responder.tracer, batch.requests, batch, responded_ns, outputs)
        if responder.slow is not None:
            responder.slow.ran(batch)
            responder.slow.responded(batch.requests, batch, batch.rows, batch.reason)
        responder.notify_drained()

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take one response to a request of a batch."""
        taken = self._scheduler.take_response(request, response)
        if taken is None:
            return
        if self._decoupled:
            self._respond_part(request, taken, batch)
        else:
            self._respond_once(request, taken, batch)

    def _respond_once(self, request: InferRequest, response: Response, batch: Batch) -> None:
        responder = self._responder
        if not response.final:
            # The time until the last one is the model's.
            self.held[request] = response._replace(output_ns=0)
            return
        held = self.held.pop(request, None) if self.held else None
        if held is not None and response.outputs is None:
            if response.error is not None:
                # The response before the failure counts, as in the reference.
                responder.log_error(request, response.error)
            response = held._replace(flags=held.flags | FLAG_FINAL | (response.flags & FLAG_RESCHEDULE))
        if response.flags & FLAG_RESCHEDULE:
            self._scheduler.requeue(request)
        elif response.error is not None and not response.flags & FLAG_OWN:
            responder.fail(request, response.error)
            if responder.tracer is not None:
                responder.trace(responder.tracer, (request,), batch, monotonic_ns(), (None,), response.error, False)
        elif response.outputs is None and response.error is None:
            text = f"{request_label(request.id)}model '{self._name}' ended the request without a response"
            responder.fail(request, BackendError(text))
        else:
            # An error that the model chose as its response counts as a success.
            output_ns = monotonic_ns() - response.output_ns if response.output_ns else 0
            responded_ns = count_one(responder.statistics, request, batch, responder.clock.wall_ms(), output_ns)
            responder.release(request)
            if response.error is not None:
                responder.log_error(request, response.error)
            responder.respond(request, {} if response.outputs is None else response.outputs, response.error)
            if responder.tracer is not None:
                responder.trace(responder.tracer, (request,), batch, responded_ns, (response.outputs,), response.error)
        self._look_for_slow(request, batch)
        responder.notify_drained()

    def _respond_part(self, request: InferRequest, response: Response, batch: Batch) -> None:
        responder = self._responder
        if response.final and response.flags & FLAG_RESCHEDULE:
            self._times.forget(request)
            self._scheduler.requeue(request)
            return
        output_ns = self._times.count(request, response, batch)
        if response.final:
            # Before the last response, within which the caller's next request may come.
            responder.release(request)
            if response.error is None or response.flags & FLAG_OWN:
                count_one(responder.statistics, request, batch, responder.clock.wall_ms(), output_ns)
            else:
                responder.statistics.count_failure(response.error.reason, monotonic_ns() - request.received_ns)
        elif response.outputs is None and response.error is None:
            # An empty response: nothing is sent.
            return
        elif responder.tracer is not None:
            note_response(request)
        send_part(request, response.outputs, response.error, response.final)
        if response.final:
            if responder.tracer is not None:
                responder.tracer.trace((request,), batch, monotonic_ns(), (response.outputs,), response.error)
            self._look_for_slow(request, batch)
            responder.notify_drained()

    def _look_for_slow(self, request: InferRequest, batch: Batch) -> None:
        slow = self._responder.slow
        if slow is not None:
            slow.responded((request,), batch, batch.rows, batch.reason)

    def _count_run(self, batch: Batch) -> None:
        self._responder.count_execution(batch)
        if self._responder.slow is not None:
            self._responder.slow.ran(batch)

    def worker_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """An instance is free for the next batch."""
        self._count_run(batch)
        self._revive(instance)
        self._scheduler.finished(instance)

    def step_finished(self, instance: ModelInstance, batch: Batch) -> None:
        """An instance that responds step by step is free for the next batch."""
        self._count_run(batch)
        self._scheduler.finished(instance)

    def framework_finished(self, instance: ModelInstance, batches: list[Batch], is_free: bool) -> None:
        """Batches of a framework's worker are done."""
        # Sequences first: the next requests of these can then be part of the next batch.
        self._scheduler.end_batches(batches)
        if is_free:
            self._queue.settle(instance, batches)
            return
        self._responder.settle(batches)
        # Other instances may run what waited for these batches.
        self._queue.wake_later()

    def worker_died(self, instance: ProcessInstance) -> None:
        """An instance can take no batch for now."""
        for request in self._queue.take_back(instance):
            self._scheduler.requeue(request)
        # A model that gets single requests may have state of its own, which is gone with its process.
        self._scheduler.lost(instance, forgets=instance.sends_requests)

    def worker_down(self, instance: ProcessInstance) -> None:
        """A worker will be down for a while. No request waits for it when no other instance is left."""
        self._scheduler.lost(instance, forgets=True)
        serving = [i for i in self.instances if i not in self._queue.passive]
        if not all(i.is_down for i in serving):
            return
        # The reference calls a worker a stub process; callers know its text.
        text = f"Stub process '{instance.name}' is not healthy. {instance.problem}"
        self._queue.outage = UnavailableError(text)
        self._scheduler.fail_all(self._queue.outage)

    def worker_ready(self, instance: ModelInstance) -> None:
        """An instance can take a batch again."""
        self._revive(instance)
        self._queue.freed(instance)

    def _revive(self, instance: ModelInstance) -> None:
        self._scheduler.found(instance)
        if instance not in self._queue.passive:
            self._queue.outage = None
