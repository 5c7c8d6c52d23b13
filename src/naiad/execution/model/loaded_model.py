"""A loaded model version: its queue, its instances and its counters, all of which belong to the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any

from naiad.backend_api.backend import Backend
from naiad.cache.local import LocalCache
from naiad.clock import Clock, SystemClock
from naiad.config.backend_view import as_backend_sees
from naiad.config.spec import ModelSpec
from naiad.errors import InvalidArgumentError, QueueFullError, UnavailableError
from naiad.execution.instances.model_instance import NO_REGIONS, ModelInstance
from naiad.execution.instances.warmup import NO_WARMUP, Warmup
from naiad.execution.model.custom_batching import CustomBatching
from naiad.execution.model.fast_path import InlineRunner, inline_runner, may_run_directly
from naiad.execution.model.group_change import GroupChange
from naiad.execution.model.group_queue import LEAST_ROWS, GroupQueue, group_rows
from naiad.execution.model.instance_set import InstanceSet
from naiad.execution.model.interceptor import Interceptor, StopInterceptor
from naiad.execution.model.interface import ServingModel
from naiad.execution.model.queue_scheduler import QueueScheduler
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.remote_cache import RemoteModelCache, SharedCache, model_cache
from naiad.execution.model.responder import ModelResponder, not_sent
from naiad.execution.model.scheduler import SchedulerFactory
from naiad.execution.model.startup import end_all
from naiad.execution.model.tracing import ModelTracer
from naiad.execution.model.worker_events import WorkerEvents
from naiad.execution.model_directory import ModelDirectory
from naiad.request import InferRequest
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.queue.ordered_release import OrderedRelease
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.latencies import Latencies
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from naiad.telemetry.slow.recorder import SlowOfModel, SlowRequests
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.tensor.device_tensor import Device
from naiad.worker.ipc.arena import Arena

logger = logging.getLogger("naiad")

MAX_ID = 16_383
"""Characters of an id that fit a frame for a worker (64 KiB of UTF-8)."""


class LoadedModel:
    """One version of a model, ready to run.

    Its parts differ with the kind of model: the interceptor sees a request first, the scheduler queues it and has it
    run, the responder counts it and responds. ``start`` and ``close`` are called in a loading thread; everything else
    on the loop.

    Args:
        make_scheduler: makes the scheduler; None for a queue with the batches of ``strategy``.
        interceptor: sees every request before it is queued; None where all are queued until the model stops.

    Attributes:
        groups: queues requests of several callers as one; None where they are submitted one by one.
        replicas: how many other processes serve a copy of it now.
        regions_from: the size in bytes from which on inputs may be ``RegionTensor``s instead of arrays. Outputs of that
            size that requests want in regions are written there before the responses. ``NO_REGIONS``: neither applies.
    """

    def __init__(
        self,
        spec: ModelSpec,
        version: int,
        backend: Backend,
        loop: asyncio.AbstractEventLoop,
        clock: Clock | None = None,
        models: ModelDirectory | None = None,
        metrics: CustomMetrics | None = None,
        cache: LocalCache | SharedCache | None = None,
        budget: RequestBudget | None = None,
        strategy: CustomBatching | None = None,
        limits: RateLimits | None = None,
        make_scheduler: SchedulerFactory | None = None,
        interceptor: Interceptor | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.version = version
        self.namespace = ""
        self._statistics = ModelStatistics()
        self._cache = model_cache(cache, spec, version, self._statistics, loop)
        self.budget = budget or RequestBudget()
        self._backend = backend
        self._loop = loop
        self.metrics = metrics or CustomMetrics()
        self._clock = clock or SystemClock()
        # The responses of decoupled models wait for no other request.
        in_order = spec.batching is not None and spec.batching.preserve_ordering and not spec.decoupled
        ordered = OrderedRelease() if in_order else None
        self._responder = ModelResponder(self.name, self._statistics, self.budget, self._clock, self._cache, ordered)
        self._strategy = strategy
        self._scheduler = (
            QueueScheduler(spec, loop, self._responder, limits, strategy)
            if make_scheduler is None
            else make_scheduler(spec, loop, self._responder, limits)
        )
        self._queue = self._scheduler.dispatcher
        self._events = WorkerEvents(spec, self._responder, self._scheduler)
        self._interceptor = StopInterceptor() if interceptor is None else interceptor
        # Decided once, as every request needs them. Without an interceptor of its own a model asks from its stop on.
        self._push = self._scheduler.push
        self._intercepts = interceptor is not None
        self._is_plain = self._cache is None and ordered is None and not self._scheduler.may_refuse
        if isinstance(self._cache, RemoteModelCache):
            self._cache.serve(self._responder, self.submit_reserved)
        self._arena = Arena() if self._leaves_inputs else None
        self._set = InstanceSet(
            backend, loop, self._events, self._queue.finished_in_thread, models, self.metrics, self._arena
        )
        self._events.instances = self._instances = self._set.all
        self._queue.passive = self._set.passive
        self._stopping = False
        self._inline_runner: InlineRunner | None = None
        self._sends_requests = False
        self.groups: GroupQueue | None = None
        self.regions_from = NO_REGIONS
        self._has_workers = False
        self.replicas = 0

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The model itself."""
        return (self,)

    @property
    def arena(self) -> Arena | None:
        """Memory of its workers into which its large inputs may be received; None for any memory."""
        tracer = self._responder.tracer
        # A trace shows the inputs as they came, and the model may change them.
        shows_inputs = tracer is not None and tracer.sampler.tensors
        return self._arena if self._has_workers and not shows_inputs else None

    @property
    def instances(self) -> tuple[ModelInstance, ...]:
        """Its instances, those included that finish their last batch."""
        return tuple(self._instances)

    @property
    def in_flight(self) -> int:
        """Requests that were admitted or have a reserved place, and have no final response."""
        return self._responder.in_flight

    @property
    def statistics(self) -> ModelStatistics:
        """The counters, up to date."""
        if self._inline_runner is not None:
            self._inline_runner.settle()
        return self._statistics

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on, or none."""
        # A model that makes its own responses or calls adds to the trace. Requests of sequences are rewritten before
        # they run, so these are chosen after their responses.
        is_early = (self._sends_requests or self.spec.decoupled) and self.spec.sequence is None
        latencies = self._statistics.latencies
        tracer = None if sampler is None else ModelTracer(sampler, self.spec, self.version, is_early, latencies)
        self._responder.tracer = tracer
        self._push = partial(self._push_traced, tracer) if is_early and tracer is not None else self._scheduler.push
        if self._inline_runner is not None:
            self._inline_runner = self._inline_runner.sampled(sampler)
        self.groups = self._find_groups()

    def keep_latencies(self, latencies: Latencies | RecentLatencies | None) -> None:
        """Note the latencies there from now on, or nowhere; ``trace_with`` has to be called again after it."""
        self._statistics.latencies = latencies
        if self._inline_runner is not None:
            self._inline_runner = self._inline_runner.sampled(None)

    def record_slow(self, requests: SlowRequests) -> None:
        """Look for slow requests from now on. Called before its first request."""
        if self._responder.slow is None:
            batching = self.spec.batching
            delay_ns = 0 if batching is None else batching.max_queue_delay_ns
            self._responder.slow = SlowOfModel(requests, self.name, self.version, delay_ns)
        self._responder.slow.instances = self._serving_count()

    def log_batches(self, is_on: bool) -> None:
        """Log each batch from now on, or no more."""
        self._queue.logged_as = self.name if is_on else ""
        self._queue.notes_batches = self._queue.notes_batches or is_on

    def _serving_count(self) -> int:
        return sum(i not in self._set.passive for i in self._instances)

    # Loading and unloading

    def start(self, warmup: Warmup = NO_WARMUP) -> None:
        """Create every instance, each in its own thread or process; blocks until all are there and warm.

        Raises:
            NaiadError: an instance could not be created; the others are closed again.
        """
        try:
            self._set.make_all(self.spec, warmup)
            self._queue.begin(self._set.serving(self._instances))
            self._set.start(self._instances, warmup)
        except BaseException:
            self.close()
            # This is a loading thread, and ``detach`` releases what belongs to the loop.
            self._loop.call_soon_threadsafe(self.detach)
            raise
        self._inline_runner = self._make_inline_runner()
        self.groups = self._find_groups()
        self.regions_from = self._find_regions_from()
        self._has_workers = any(instance.is_worker for instance in self._instances)
        self._sends_requests = any(instance.sends_requests for instance in self._instances)

    def _make_inline_runner(self) -> InlineRunner | None:
        """The fast path, where only one instance on the loop stands between a request and its response."""
        first = self._queue.idle[0] if self._queue.idle else None
        is_plain = (
            not self._scheduler.batches
            and not self._queue.gate.is_limited
            and self._responder.ordered is None
            and self._cache is None
        )
        if not is_plain or not may_run_directly(self.spec):
            return None
        execute = None if first is None else first.execute
        return None if execute is None else inline_runner(execute, self._statistics, self._clock)

    def _find_groups(self) -> GroupQueue | None:
        """What queues groups, where the model sees no difference to single requests, and nothing looks at these."""
        spec, batching = self.spec, self.spec.batching
        if batching is None or not self._is_plain or self._intercepts or self._responder.tracer is not None:
            return None
        # Preferred sizes, ragged inputs and strategies decide by single requests. The only preferred size of a model
        # that configures none is its largest one.
        if (
            min(batching.preferred_batch_sizes) < spec.max_batch_size
            or spec.assembly is not None
            or self._strategy is not None
        ):
            return None
        rows = group_rows(spec.max_batch_size)
        if rows < LEAST_ROWS or not all(instance.gathers for instance in self._instances):
            return None
        return GroupQueue(self._responder, self._scheduler, rows)

    def _find_regions_from(self) -> int:
        """From which size on every instance can read an input from a region itself."""
        if not self._leaves_inputs:
            return NO_REGIONS
        return max((instance.regions_from for instance in self._instances), default=NO_REGIONS)

    @property
    def _leaves_inputs(self) -> bool:
        """Whether inputs can stay where they are until an instance reads them, and nobody looks at them after it."""
        # They are part of the cache's key, or are not concatenated row by row, or have controls and states as arrays
        # beside them and may run again.
        return self._cache is None and self.spec.assembly is None and self.spec.sequence is None

    @property
    def device(self) -> Device | None:
        """The device of all instances that serve; None for the processor's memory."""
        spec = self.spec
        if self._cache is not None or self._responder.ordered is not None or self._strategy is not None:
            # These look at the bytes of tensors.
            return None
        if spec.assembly is not None or spec.sequence is not None or spec.decoupled:
            return None
        found = {instance.device for instance in self._instances if instance not in self._set.passive}
        return found.pop() if len(found) == 1 else None

    @property
    def may_write_inputs(self) -> bool:
        """Whether one of its instances may write to inputs, as Python models on a device may."""
        return any(instance.may_write_inputs for instance in self._instances)

    def close(self, timeout: float | None = None) -> bool:
        """End every instance after what it runs and close the backend; False when one did not end in time."""
        ended = end_all(self._instances, timeout)
        if ended:
            # Otherwise a thread that has not ended may still call the backend.
            if self._strategy is not None:
                self._strategy.close()
            try:
                self._backend.close()
            except Exception:
                logger.exception("the backend of model '%s' failed to close", self.name)
        return ended

    def stop_accepting(self) -> None:
        """Refuse new requests; admitted ones continue."""
        self._stopping = self._intercepts = True
        self.groups = None
        # The fast path does not look at ``_stopping``.
        if self._inline_runner is not None:
            self._inline_runner.settle()
            self._inline_runner = None

    @property
    def is_busy(self) -> bool:
        """Whether a caller waits for a response, or continues a sequence."""
        return self._responder.in_flight > 0 or self._scheduler.has_live

    @property
    def is_drained(self) -> bool:
        """Whether no request is in flight, and no sequence to be waited for."""
        return self._responder.is_drained

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as the model is drained, at once when it is."""
        self._responder.when_drained(callback)

    def replica_began(self) -> None:
        """Another process serves a copy of it, so that it is not drained before ``replica_ended``."""
        self._responder.open_replicas += 1

    def replica_ended(self) -> None:
        """A copy in another process has responded to its last request."""
        self._responder.open_replicas -= 1
        self._responder.notify_drained()

    @property
    def is_self_contained(self) -> bool:
        """Whether a copy in another process serves as well: nothing but counters connects its requests."""
        responder = self._responder
        return (
            self._is_plain
            and not self._intercepts
            and self._strategy is None
            and not self._sends_requests
            and not self._queue.gate.is_limited
            and not isinstance(self._statistics.latencies, Latencies)
            and responder.tracer is None
            and responder.slow is None
            and not any(instance.pid for instance in self._instances)
        )

    def detach(self) -> None:
        """Release what belongs to the event loop; the last call there."""
        self._interceptor.close()
        self._scheduler.close()
        self._set.clear()
        if self._arena is not None:
            self._arena.close()
        if self._cache is not None:
            self._cache.close()

    @property
    def problem(self) -> str:
        """Why instances cannot work, "" when all can."""
        return self._set.problem

    # Other batches, and other instance groups, while it serves

    def limit_batches(self, max_rows: int, max_queue_delay_ns: int) -> None:
        """Make batches of at most ``max_rows`` rows from now on, whose requests wait at most for the delay.

        ``spec`` stays as configured. Without effect on a model without dynamic batching.
        """
        self._scheduler.limit_batches(max_rows, max_queue_delay_ns)
        if self.groups is not None:
            self.groups.rows = group_rows(max_rows)

    def regroup(self, spec: ModelSpec, config: Any, warmup: Warmup) -> GroupChange[ModelInstance]:
        """Create the instances that the groups of ``spec`` lack; they do not serve yet.

        ``config`` is the completed configuration message with these groups; errors as ``Backend.regroup``.
        """
        before = self._backend.config
        try:
            self._backend.regroup(as_backend_sees(spec), config)
            change = self._set.regroup(spec, warmup)
            try:
                self._queue.join(self._set.serving(change.coming))
            except BaseException:
                self._set.forget(change.coming)
                raise
            return change
        except BaseException:
            self._backend.regroup(as_backend_sees(self.spec), before)
            raise

    def start_more(self, change: GroupChange[ModelInstance], warmup: Warmup) -> None:
        """Start the instances that came with ``regroup``; called in a loading thread. Errors as ``start``."""
        self._set.start(change.coming, warmup)

    def serve_by(self, spec: ModelSpec, change: GroupChange[ModelInstance]) -> None:
        """Let new instances serve, and leaving ones get no more batches."""
        self.spec = spec
        fresh = self._set.exchange(change)
        if self._inline_runner is not None:
            self._inline_runner.settle()
            self._inline_runner = self._make_inline_runner()
            tracer = self._responder.tracer
            if tracer is not None and self._inline_runner is not None:
                self._inline_runner = self._inline_runner.sampled(tracer.sampler)
        if self._responder.slow is not None:
            self._responder.slow.instances = self._serving_count()
        self.groups = self._find_groups()
        self._queue.serve_by(fresh)

    def stay_with(self, config: Any) -> None:
        """Undo ``regroup``; ``config`` is the completed configuration message from before."""
        self._backend.regroup(as_backend_sees(self.spec), config)

    @property
    def uses_gpus(self) -> bool:
        """Whether its framework runs on the GPUs of this machine."""
        return self._backend.uses_gpus()

    @property
    def leaving(self) -> int:
        """How many instances leave that have not ended."""
        return self._set.leaving

    def forget(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended."""
        self._queue.leave(instances)
        self._set.forget(instances)

    @property
    def instance_states(self) -> dict[str, int]:
        """How many instances that serve are idle, busy and down."""
        serving = [i for i in self._instances if i not in self._set.passive]
        down = sum(not i.is_up for i in serving)
        idle = sum(i.is_up and self._queue.is_idle(i) for i in serving)
        return {"idle": idle, "busy": len(serving) - down - idle, "down": down}

    @property
    def process_ids(self) -> list[int]:
        """The numbers of its worker processes."""
        return [i.pid for i in self._instances if i.pid]

    def note_batches(self) -> None:
        """From now on let requests note the batch that they run in (``InferRequest.joined``)."""
        self._queue.notes_batches = True

    # The path of a request

    def submit(self, request: InferRequest) -> None:
        """Queue a checked request; its ``respond`` is called once, later.

        Raises:
            ServerStoppingError: the model no longer accepts requests.
            UnavailableError: no instance can run it for a while.
            QueueFullError: the server or the model has too many requests in flight, or the queue is as long as the
                model's queue policy allows.
        """
        inline = self._inline_runner
        # False: the run failed or is to be traced, and the request goes through the queue.
        if inline is not None and inline.run(request, not_sent):
            return
        if self._intercepts and self._interceptor.intercept(request, self._stopping):
            return
        if self._sends_requests and len(request.id) > MAX_ID:
            raise InvalidArgumentError(
                f"the id of a request to model '{self.name}' has {len(request.id)} characters; at most {MAX_ID} reach "
                "the process of a model"
            )
        queue = self._queue
        if queue.outage is not None:
            # A new error for each request: one that is raised again collects tracebacks.
            raise UnavailableError(str(queue.outage))
        if self._is_plain:
            self._responder.admit(request)
            self._push(request)
        elif not self._queued_specially(request):
            return
        self._statistics.pending += 1
        if queue.idle and not queue.turn_is_set:
            self._scheduler.wake(request)

    def _push_traced(self, tracer: ModelTracer, request: InferRequest) -> None:
        tracer.begin(request)
        self._scheduler.push(request)

    def reserve(self) -> None:
        """Reserve a place for a request that is still being read: until ``submit_reserved`` or ``release`` is called,
        this model is not closed, even when another one serves in its place by then."""
        self._responder.in_flight += 1

    def submit_reserved(self, request: InferRequest) -> None:
        """Submit a request with a reserved place, also while the model stops; errors as ``submit``."""
        # Without instances ``detach`` has been called, and nothing could run the request any more.
        is_stopping, self._stopping = self._stopping, self._stopping and not self._instances
        # ``submit`` counts the request itself.
        self._responder.in_flight -= 1
        try:
            self.submit(request)
        finally:
            self._stopping = is_stopping
            self._responder.notify_drained()

    def release(self) -> None:
        """Release a reserved place: its request does not come."""
        self._responder.in_flight -= 1
        self._responder.notify_drained()

    def _respond_from_cache(self, request: InferRequest) -> bool:
        cache = self._cache
        if isinstance(cache, RemoteModelCache):
            if not cache.may_take(request):
                return False
            # ``take`` admits the request without a check of its own.
            if request.can_be_refused:
                self._responder.check_room(request.held_bytes, request.received_ns)
            return cache.take(request)
        if cache is None or (outputs := cache.look_up(request)) is None:
            return False
        self._responder.respond_cached(request, outputs)
        return True

    def _queued_specially(self, request: InferRequest) -> bool:
        """Queue a request that may be refused, and note its place where responses keep the order of requests.

        False when the cache responds to it, now or later.
        """
        try:
            if self._cache is not None and self._respond_from_cache(request):
                return False
            self._responder.admit(request)
            try:
                self._push(request)
            except BaseException:
                self._responder.release(request)
                raise
        except QueueFullError:
            # Its look-up waits for outputs that will not come.
            if self._cache is not None:
                self._cache.keep(request, None)
            raise
        if self._responder.ordered is not None:
            self._responder.ordered.add(request)
        return True

    def check_room(self, size: int) -> None:
        """Check that a request of at least ``size`` bytes would be admitted, before its body is read.

        Raises:
            QueueFullError: it would not; that counts as a failure.
        """
        if self._inline_runner is None:
            self._responder.check_room(size, monotonic_ns())

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request: it leaves the queue at once; a request that runs gets its response all the same."""
        if self._drop_look_up(request):
            self._responder.fail_cancelled(request)
            return
        running = self._scheduler.cancel(request)
        if running is not None:
            # Nothing records which instance runs a request; the others ignore it.
            for instance in self._instances:
                instance.cancel(running)

    def _drop_look_up(self, request: InferRequest) -> bool:
        if self._cache is None or not self._cache.give_up(request):
            return False
        if self._responder.ordered is not None:
            # It had no place among the responses yet, and gets the next one.
            self._responder.ordered.add(request)
        return True

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Pause a request whose caller does not take its responses; see ``Recipient.pause``."""
        running = self._scheduler.as_run(request)
        if self._responder.slow is not None:
            self._responder.slow.paused(running)
        for instance in self._instances:
            instance.pause(running, backpressure_timeout_ms)

    def resume(self, request: InferRequest) -> None:
        """Resume a paused request: its caller takes its responses again."""
        running = self._scheduler.as_run(request)
        if self._responder.slow is not None:
            self._responder.slow.resumed(running)
        for instance in self._instances:
            instance.resume(running)
