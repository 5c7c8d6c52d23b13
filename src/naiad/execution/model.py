"""A loaded model version: its queue, its instances and its counters. All of it is touched by the event loop alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any, Final

from naiad.backends.base import Backend
from naiad.cache.local import LocalCache
from naiad.child.protocol import FLAG_OWN, FLAG_RESCHEDULE, SEGMENT_BYTES
from naiad.clock import Clock, SystemClock
from naiad.config.spec import ModelSpec
from naiad.errors import (
    BackendError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    NaiadError,
    QueueFullError,
    RequestTimeoutError,
    ServerStoppingError,
    UnavailableError,
)
from naiad.execution.batch import Batch
from naiad.execution.caching import ModelCache
from naiad.execution.child_calls import Models
from naiad.execution.child_codec import Response
from naiad.execution.counting import count_batch, count_failed_execution, count_one
from naiad.execution.direct import DirectRunner, may_run_directly
from naiad.execution.gather import SMALL_BYTES, gather, is_small
from naiad.execution.hosted import HostedInstance
from naiad.execution.inline import InlineInstance
from naiad.execution.instances import AnyInstance, InstanceSet
from naiad.execution.process import ProcessInstance
from naiad.execution.regrouping import Regrouping
from naiad.execution.starting import end_all
from naiad.execution.thread import InstanceThread
from naiad.execution.timer import LoopTimer
from naiad.execution.tracing import ModelTracer
from naiad.execution.waiting_time import WaitingTime
from naiad.execution.warmup import NO_WARMUP, Warmup
from naiad.request import Array, InferRequest, request_label
from naiad.scheduling.batch import Batcher, DynamicBatcher, SingleBatcher
from naiad.scheduling.budget import RequestBudget
from naiad.scheduling.ordering import OrderedRelease
from naiad.scheduling.policy_queue import PolicyQueue
from naiad.telemetry.custom_metrics import CustomMetrics
from naiad.telemetry.logs import request_log
from naiad.telemetry.statistics import ModelStatistics
from naiad.telemetry.tracing import Sampler

logger = logging.getLogger("naiad")

MAX_ID = 16_383
"""Characters of an id that fit the frames for a process (64 KiB of UTF-8)."""
NEVER: Final = 1 << 63


class LoadedModel:
    """One version of a model, ready to run.

    ``start`` and ``close`` are called in a loading thread; everything else on the loop.

    Attributes:
        regions_from: inputs of so many bytes and more may be a ``RegionTensor`` instead of an array, and such outputs
            as requests want in regions are written there before they come back; ``NEVER`` where that is not so.
    """

    def __init__(
        self,
        spec: ModelSpec,
        version: int,
        backend: Backend,
        loop: asyncio.AbstractEventLoop,
        clock: Clock | None = None,
        models: Models | None = None,
        metrics: CustomMetrics | None = None,
        cache: LocalCache | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.version = version
        self.namespace = ""
        self._statistics = ModelStatistics()
        self._cache = ModelCache(cache, spec, version, self._statistics) if cache is not None else None
        self.in_flight = 0
        self.budget = budget or RequestBudget()
        self._backend = backend
        self._loop = loop
        self.metrics = metrics or CustomMetrics()
        self._clock = clock or SystemClock()
        self._policies = PolicyQueue(spec.queue) if spec.queue is not None else None
        self._waiting_time: WaitingTime | None = None
        if self._policies is not None:
            self._waiting_time = WaitingTime(self._policies, loop, self._refuse_late)
        self._batcher = _make_batcher(spec, self._policies)
        self._batches = isinstance(self._batcher, DynamicBatcher)
        # The responses of decoupled models wait for no other request.
        in_order = spec.batching is not None and spec.batching.preserve_ordering and not spec.decoupled
        self._ordered = OrderedRelease() if in_order else None
        self._set = InstanceSet(backend, loop, self, self._finished_in_thread, models, self.metrics)
        self._instances = self._set.all
        self._passive = self._set.passive
        self._idle: list[AnyInstance] = []
        # Of a model whose instances are processes: responses that are not final yet.
        self._held: dict[InferRequest, Response] = {}
        self._turn_is_set = False
        self._timer: LoopTimer | None = None
        self._stopping = False
        self._drained: list[Callable[[], object]] = []
        self._direct: DirectRunner | None = None
        # Why no instance will be there for a while.
        self._outage: UnavailableError | None = None
        self._runs_in_processes = False
        self.regions_from = NEVER
        self._tracer: ModelTracer | None = None

    @property
    def statistics(self) -> ModelStatistics:
        """The counters, up to date."""
        if self._direct is not None:
            self._direct.settle()
        return self._statistics

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on, or none."""
        self._tracer = None if sampler is None else ModelTracer(sampler, self.spec, self.version)
        if self._direct is not None:
            self._direct = self._direct.sampled(sampler)

    # Loading and unloading

    def start(self, warmup: Warmup = NO_WARMUP) -> None:
        """Create every instance, each in its own thread or process; blocks until all are there and warm.

        Raises:
            NaiadError: an instance could not be created; those that were are closed again.
        """
        try:
            self._set.make_all(self.spec, warmup)
            # Before any starts: one that dies while others start leaves the list again.
            self._idle = [i for i in self._instances if i not in self._passive]
            self._set.start(self._instances, self.spec, warmup)
        except BaseException:
            self.close()
            self._loop.call_soon_threadsafe(self.detach)
            raise
        self._direct = self._make_direct()
        self.regions_from = self._find_regions_from()
        # The processes of frameworks do not get to see the requests.
        self._runs_in_processes = any(type(i) is ProcessInstance for i in self._instances)

    def _make_direct(self) -> DirectRunner | None:
        """The shortest way, where one instance on the loop is all there is between a request and its answer."""
        first = self._idle[0] if self._idle else None
        if self._batches or self._ordered is not None or self._cache is not None or not may_run_directly(self.spec):
            return None
        return DirectRunner(first.execute, self._statistics, self._clock) if isinstance(first, InlineInstance) else None

    def _find_regions_from(self) -> int:
        """Threads and processes read what they need themselves; what is small travels at less cost."""
        if self._cache is not None:
            # Its inputs are part of the key.
            return NEVER
        kinds = {type(instance) for instance in self._instances}
        if kinds and kinds <= {ProcessInstance, HostedInstance}:
            return SEGMENT_BYTES
        return SMALL_BYTES + 1 if kinds == {InstanceThread} else NEVER

    def close(self, timeout: float | None = None) -> bool:
        """End every instance after what it runs and close the backend; False when one did not end in time."""
        ended = end_all(self._instances, timeout)
        if ended:
            try:
                self._backend.close()
            except Exception:
                logger.exception("the backend of model '%s' failed to close", self.name)
        return ended

    def stop_accepting(self) -> None:
        """Refuse new requests; those accepted go on."""
        self._stopping = True
        if self._direct is not None:
            self._direct.settle()
            self._direct = None

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as no accepted request is left, at once when there is none."""
        if self.in_flight == 0:
            callback()
        else:
            self._drained.append(callback)

    def detach(self) -> None:
        """Give the loop's own resources back; the last call on the loop."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if self._waiting_time is not None:
            self._waiting_time.close()
            self._waiting_time = None
        self._set.clear()
        self._idle.clear()

    @property
    def problem(self) -> str:
        """What keeps instances from working, "" when nothing does."""
        return self._set.problem

    # Other instance groups while it serves

    def regroup(self, spec: ModelSpec, config: Any, warmup: Warmup) -> Regrouping[AnyInstance]:
        """Make the instances that the groups of ``spec`` ask for beyond those that are there; they serve nobody yet.

        ``config`` is the completed configuration message with these groups; errors as ``Backend.regroup``.
        """
        before = self._backend.config
        try:
            self._backend.regroup(spec, config)
            return self._set.regroup(spec, warmup)
        except BaseException:
            self._backend.regroup(self.spec, before)
            raise

    def start_more(self, change: Regrouping[AnyInstance], warmup: Warmup) -> None:
        """Start the instances that came with ``regroup``; called in a loading thread. Errors as ``start``."""
        self._set.start(change.coming, self.spec, warmup)

    def serve_by(self, spec: ModelSpec, change: Regrouping[AnyInstance]) -> None:
        """Let the instances that came serve, and give those that leave nothing more to do."""
        self.spec = spec
        fresh = self._set.exchange(change)
        self._idle = [i for i in self._idle if i not in self._passive] + fresh
        if fresh:
            self._outage = None
        if self._direct is not None:
            self._direct.settle()
            self._direct = self._make_direct()
            if self._tracer is not None and self._direct is not None:
                self._direct = self._direct.sampled(self._tracer.sampler)
        self._turn()

    def stay_with(self, config: Any) -> None:
        """Give up what ``regroup`` began with; ``config`` is the completed message from before."""
        self._backend.regroup(self.spec, config)

    @property
    def leaving(self) -> int:
        """How many instances leave that have not ended."""
        return self._set.leaving

    def may_end(self, instance: AnyInstance) -> bool:
        """Whether an instance that leaves has nothing more to do."""
        return self._set.may_end(instance)

    def let_go(self, instances: Sequence[AnyInstance]) -> None:
        """Forget instances that have ended."""
        self._set.let_go(instances)

    @property
    def process_ids(self) -> list[int]:
        """The processes that its instances run in, if they do not run in the server's."""
        return [i.pid for i in self._instances if isinstance(i, ProcessInstance) and i.pid]

    # The way of a request

    def submit(self, request: InferRequest) -> None:
        """Take a checked request in; its ``respond`` is called once, later.

        Raises:
            ServerStoppingError: the model no longer accepts requests.
            UnavailableError: no instance can run it for a while.
            QueueFullError: the server or the model has too many unanswered requests, or as many wait as the model's
                queue policy allows.
        """
        direct = self._direct
        if direct is not None and direct.run(request, _not_sent):
            return
        if self._stopping:
            raise ServerStoppingError(
                "Server is stopping, scheduler for model has stopped accepting new inference requests"
            )
        if len(request.id) > MAX_ID and self._runs_in_processes:
            raise InvalidArgumentError(
                f"the id of a request to model '{self.name}' has {len(request.id)} characters; at most {MAX_ID} reach "
                "the process of a model"
            )
        if self._outage is not None:
            raise UnavailableError(str(self._outage))
        if self._cache is not None and self._answered_from_cache(request, self._cache):
            return
        budget, size = self.budget, request.held_bytes
        held = budget.bytes + size
        if held > budget.max_bytes or budget.requests >= budget.max_requests or self.in_flight >= budget.max_per_model:
            self._check_room(request)
        if self._policies is None:
            self._batcher.push(request)
        else:
            self._push_by_policy(request)
        budget.bytes = held
        budget.requests += 1
        self.in_flight += 1
        self._statistics.pending += 1
        if self._ordered is not None:
            self._ordered.expect(request)
        if self._idle and not self._turn_is_set:
            if self._batches:
                self._turn_is_set = True
                self._loop.call_soon(self._turn)
            else:
                # Nothing that comes later in this turn could run with it, and its bytes are still in the cache.
                self._turn()

    def expect(self) -> None:
        """A request that is still being read will come: until ``submit_expected`` or ``expect_no_more`` is called, this
        model is not closed, even when another one serves in its place by then."""
        self.in_flight += 1

    def submit_expected(self, request: InferRequest) -> None:
        """``submit``, for a request that was accepted when it was expected."""
        is_stopping, self._stopping = self._stopping, self._stopping and not self._instances
        self.in_flight -= 1
        try:
            self.submit(request)
        finally:
            self._stopping = is_stopping
            self._tell_when_drained()

    def expect_no_more(self) -> None:
        """The request that was expected does not come."""
        self.in_flight -= 1
        self._tell_when_drained()

    def _answered_from_cache(self, request: InferRequest, cache: ModelCache) -> bool:
        if (outputs := cache.look_up(request)) is None:
            return False
        self._statistics.last_inference_ms = self._clock.wall_ms()
        if self._ordered is not None:
            self._ordered.expect(request)
        self._respond(request, outputs, None)
        return True

    def _push_by_policy(self, request: InferRequest) -> None:
        try:
            self._batcher.push(request)
        except QueueFullError as error:
            self._statistics.count_failure(error.reason, monotonic_ns() - request.received_ns)
            if self._cache is not None:
                self._cache.keep(request, None)
            raise self.budget.refuse("queue", str(error)) from None
        if self._waiting_time is not None:
            self._waiting_time.watch()

    def _refuse_late(self, request: InferRequest) -> None:
        self._statistics.pending -= 1
        self._fail(request, RequestTimeoutError("Request timeout expired"))
        self._tell_when_drained()

    def check_room(self, size: int) -> None:
        """Check that a request of at least ``size`` bytes would be taken, before work is done for it.

        Raises:
            QueueFullError: it would not; that counts as a request that failed.
        """
        budget = self.budget
        if self._direct is None and (
            budget.bytes + size > budget.max_bytes
            or budget.requests >= budget.max_requests
            or self.in_flight >= budget.max_per_model
        ):
            self._refuse(size, monotonic_ns())

    def _check_room(self, request: InferRequest) -> None:
        if not request.can_be_refused:
            return
        try:
            self._refuse(request.held_bytes, request.received_ns)
        except QueueFullError:
            if self._cache is not None:
                self._cache.keep(request, None)
            raise

    def _refuse(self, size: int, received_ns: int) -> None:
        error = self.budget.refusal(size, self.name, self.in_flight)
        if error is not None:
            self._statistics.count_failure(error.reason, monotonic_ns() - received_ns)
            raise error

    def _let_go(self, request: InferRequest) -> None:
        """A request is about to be answered for good."""
        self.in_flight -= 1
        self.budget.requests -= 1
        self.budget.bytes -= request.held_bytes

    def cancel(self, request: InferRequest) -> None:
        """Give a request up: it leaves the queue at once; one that already runs is answered all the same."""
        if self._batcher.discard(request):
            self._statistics.pending -= 1
            self._fail(request, CancelledError(f"{request_label(request.id)}the request was cancelled by its caller"))
            self._tell_when_drained()
        elif self._runs_in_processes:
            for instance in self._instances:
                if isinstance(instance, ProcessInstance):
                    instance.cancel(request)

    def _turn(self) -> None:
        """End of a loop turn in which requests came or an instance became idle: hand batches out."""
        self._turn_is_set = False
        now_ns = monotonic_ns()
        if self._waiting_time is not None:
            self._waiting_time.look(now_ns)
        idle = self._idle
        while idle:
            requests, wake_ns = self._batcher.take(now_ns)
            if not requests:
                if wake_ns:
                    self._wake_at(wake_ns)
                return
            self._statistics.pending -= len(requests)
            batch = Batch(requests)
            if isinstance(idle[-1], ProcessInstance):
                self._run_in_child(idle.pop(), batch)
                now_ns = monotonic_ns()
                continue
            if is_small(batch):
                # Done here without a fight for the interpreter, which would cost the instance's thread far more.
                try:
                    batch.inputs = gather(batch, self.spec)
                except Exception:
                    # The instance meets it again, and there it fails this batch alone.
                    batch.inputs = None
                batch.gather_ns = monotonic_ns() - now_ns
            instance = idle.pop()
            if finished := instance.run(batch):
                idle.append(instance)
                self._settle(finished)
            now_ns = monotonic_ns()

    # Instances that are processes

    def _run_in_child(self, instance: AnyInstance, batch: Batch) -> None:
        if not isinstance(instance, ProcessInstance):
            raise InternalError(f"instance '{instance.name}' is no process")
        if isinstance(instance, HostedInstance):
            if finished := instance.run(batch):
                self._idle.append(instance)
                self._settle(finished)
            return
        if refused := instance.run(batch):
            self._idle.append(instance)
            self._settle(refused)

    def child_answered(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Take the one response of each request of a batch. The instance gets its next batch before that."""
        self.child_revived(instance)
        answered_ns = self._count(batch)
        for request, arrays in zip(batch.requests, outputs, strict=True):
            self._respond(request, arrays, None)
        if self._tracer is not None:
            self._tracer.trace(batch.requests, batch, answered_ns, outputs)
        self._tell_when_drained()

    def child_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take one response of a request that runs in a process."""
        if self.spec.decoupled:
            self._respond_part(request, response, batch)
            return
        if not response.final:
            self._held[request] = response
            return
        held = self._held.pop(request, None) if self._held else None
        if held is not None and response.outputs is None and response.error is None:
            response = held._replace(flags=held.flags | response.flags)
        if response.flags & FLAG_RESCHEDULE:
            self._requeue(request)
        elif response.error is not None and not response.flags & FLAG_OWN:
            self._fail(request, response.error)
            if self._tracer is not None:
                self._tracer.trace((request,), batch, monotonic_ns(), (None,), response.error, False)
        elif response.outputs is None and response.error is None:
            text = f"{request_label(request.id)}model '{self.name}' ended the request without a response"
            self._fail(request, BackendError(text))
        else:
            # An error that the model chose as its answer counts as a success: it did what it was asked for.
            answered_ns = count_one(self._statistics, request, batch, self._clock.wall_ms())
            self._let_go(request)
            if response.error is not None:
                self._log_error(request, response.error)
            self._respond(request, {} if response.outputs is None else response.outputs, response.error)
            if self._tracer is not None:
                self._tracer.trace((request,), batch, answered_ns, (response.outputs,), response.error)
        self._tell_when_drained()

    def _respond_part(self, request: InferRequest, response: Response, batch: Batch) -> None:
        if response.final:
            if response.flags & FLAG_RESCHEDULE:
                self._requeue(request)
                return
            self._let_go(request)
            if response.error is None or response.flags & FLAG_OWN:
                count_one(self._statistics, request, batch, self._clock.wall_ms())
            else:
                self._statistics.count_failure(response.error.reason, monotonic_ns() - request.received_ns)
        try:
            request.respond_part(response.outputs, response.error, response.final)
        except Exception:
            logger.exception("%sthe answer could not be sent", request_label(request.id))
        if response.final:
            if self._tracer is not None:
                self._tracer.trace((request,), batch, monotonic_ns(), (response.outputs,), response.error)
            self._tell_when_drained()

    def _requeue(self, request: InferRequest) -> None:
        """The model gave a request back: it waits for its turn again."""
        self._statistics.pending += 1
        if self._policies is None:
            self._batcher.push(request)
        else:
            self._policies.append_again(request)
        if self._idle and not self._turn_is_set:
            self._turn_is_set = True
            self._loop.call_soon(self._turn)

    def child_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """An instance is free for the next batch."""
        self._statistics.count_execution(
            batch.rows, batch.input_ns - batch.start_ns, batch.infer_ns - batch.input_ns, batch.end_ns - batch.infer_ns
        )
        self.child_revived(instance)

    def hosted_finished(self, instance: HostedInstance, batches: list[Batch], is_free: bool) -> None:
        """Batches of a framework's process are done."""
        if is_free and instance not in self._passive:
            # It gets its next batch before the callers get their answers.
            self._idle.append(instance)
            self._turn()
        self._settle(batches)

    def child_died(self, instance: ProcessInstance) -> None:
        """An instance can take no batch for now."""
        if instance in self._idle:
            self._idle.remove(instance)

    def child_down(self, instance: ProcessInstance) -> None:
        """An instance will have no process for a while. Nobody waits for it when no other is left."""
        serving = [i for i in self._instances if i not in self._passive]
        if not all(isinstance(i, ProcessInstance) and i.is_down for i in serving):
            return
        text = f"Stub process '{instance.name}' is not healthy. {instance.problem}"
        self._outage = UnavailableError(text)
        for request in self._batcher.drain():
            self._statistics.pending -= 1
            self._fail(request, self._outage)
        self._tell_when_drained()

    def child_revived(self, instance: ProcessInstance) -> None:
        """An instance can take a batch again."""
        if instance in self._passive:
            return
        self._outage = None
        self._idle.append(instance)
        self._turn()

    def _wake_at(self, at_ns: int) -> None:
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self._turn)
        self._timer.arm(at_ns)

    def _finished_in_thread(self, instance: InstanceThread, batches: list[Batch]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._finished, instance, batches)
        except RuntimeError:
            # The loop is closed: the server was told to abort and nobody waits for these answers.
            return

    def _finished(self, instance: InstanceThread, batches: list[Batch]) -> None:
        if instance not in self._passive:
            self._idle.append(instance)
        self._turn()
        self._settle(batches)

    def _settle(self, batches: list[Batch]) -> None:
        """Count finished batches and answer their requests."""
        for batch in batches:
            answered_ns = 0 if self._tracer is None else monotonic_ns()
            if batch.error is None:
                self._succeed(batch)
            else:
                count_failed_execution(self._statistics, batch)
                for request in batch.requests:
                    self._fail(request, batch.error)
            if self._tracer is not None:
                self._tracer.trace(batch.requests, batch, answered_ns, None, batch.error)
        self._tell_when_drained()

    def _tell_when_drained(self) -> None:
        if self.in_flight == 0 and self._drained:
            callbacks, self._drained = self._drained, []
            for callback in callbacks:
                callback()

    def _succeed(self, batch: Batch) -> None:
        self._count(batch)
        requests, results = batch.requests, batch.results
        if len(requests) == 1:
            self._respond(requests[0], results, None)
            return
        row = 0
        is_special = self._ordered is not None or self._cache is not None
        items = tuple(results.items())
        name, array = items[0] if len(items) == 1 else ("", None)
        for request in requests:
            end = row + request.terms.rows
            # The short form for one output saves a call per request.
            outputs = {n: a[row:end] for n, a in items} if array is None else {name: array[row:end]}
            row = end
            if is_special:
                self._respond(request, outputs, None)
                continue
            try:
                request.respond(outputs, None)
            except Exception:
                _not_sent(request)

    def _fail(self, request: InferRequest, error: NaiadError) -> None:
        self._let_go(request)
        self._statistics.count_failure(error.reason, monotonic_ns() - request.received_ns)
        self._log_error(request, error)
        self._respond(request, {}, error)

    def _log_error(self, request: InferRequest, error: NaiadError) -> None:
        level = logging.DEBUG if isinstance(error, CancelledError) else logging.WARNING
        request_log(logger, level, request.id, "failed for model '%s': %s", self.name, error)

    def _respond(self, request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if self._cache is not None:
            self._cache.keep(request, outputs if error is None else None)
        if self._ordered is not None:
            # One slow request holds up the answers of any number of later ones: these count until they leave.
            size = sum(array.nbytes for array in outputs.values())
            self.budget.take(size)
            self._ordered.release(request, partial(self._send_in_order, request, outputs, error, size))
        else:
            _send(request, outputs, error)

    def _send_in_order(
        self, request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None, size: int
    ) -> None:
        self.budget.let_go(size)
        _send(request, outputs, error)

    def _count(self, batch: Batch) -> int:
        """Count a batch that succeeded. Its requests are no longer held. Gives back the time that was counted to."""
        self.in_flight -= len(batch.requests)
        self.budget.requests -= len(batch.requests)
        self.budget.bytes -= sum([request.held_bytes for request in batch.requests])
        return count_batch(self._statistics, batch, self._clock.wall_ms())


def _send(request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
    try:
        request.respond(outputs, error)
    except Exception:
        _not_sent(request)


def _not_sent(request: InferRequest) -> None:
    """The answer of one request must not take the others of its batch with it; called while an error is handled.

    The caller is told, in case it is the outputs that could not be sent.
    """
    logger.exception("%sthe answer could not be sent", request_label(request.id))
    try:
        request.respond({}, InternalError(f"{request_label(request.id)}the answer could not be sent, see the log"))
    except Exception:
        logger.debug("%snor could an error be sent", request_label(request.id), exc_info=True)


def _make_batcher(spec: ModelSpec, queue: PolicyQueue | None) -> Batcher:
    if spec.batching is None or spec.max_batch_size < 1:
        return SingleBatcher(queue)
    return DynamicBatcher(spec.batching, spec.max_batch_size, queue)
