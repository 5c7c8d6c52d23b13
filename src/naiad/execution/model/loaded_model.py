"""A loaded model version: its queue, its instances and its counters. All of it is touched by the event loop alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
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
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.fast_path import InlineRunner, may_run_directly
from naiad.execution.model.group_change import GroupChange
from naiad.execution.model.instance_set import InstanceSet
from naiad.execution.model.interface import ServingModel
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.remote_cache import RemoteModelCache, SharedCache, model_cache
from naiad.execution.model.responder import ModelResponder, not_sent, stopping_error
from naiad.execution.model.startup import end_all
from naiad.execution.model.tracing import ModelTracer
from naiad.execution.model.worker_events import WorkerEvents
from naiad.execution.model_directory import ModelDirectory
from naiad.request import InferRequest
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.queue.ordered_release import OrderedRelease
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.tracing.settings_store import Sampler

logger = logging.getLogger("naiad")

MAX_ID = 16_383
"""Characters of an id that fit the frames for a process (64 KiB of UTF-8)."""


class LoadedModel:
    """One version of a model, ready to run.

    ``start`` and ``close`` are called in a loading thread; everything else on the loop.

    Attributes:
        regions_from: inputs of so many bytes and more may be a ``RegionTensor`` instead of an array, and such outputs
            as requests want in regions are written there before they come back; ``NO_REGIONS`` where that is not so.
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
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.version = version
        self.namespace = ""
        self._statistics = ModelStatistics()
        # Responses to requests of a sequence depend on those before.
        self._cache = model_cache(cache if spec.sequence is None else None, spec, version, self._statistics, loop)
        self.budget = budget or RequestBudget()
        self._backend = backend
        self._loop = loop
        self.metrics = metrics or CustomMetrics()
        self._clock = clock or SystemClock()
        # The responses of decoupled models wait for no other request.
        in_order = spec.batching is not None and spec.batching.preserve_ordering and not spec.decoupled
        ordered = OrderedRelease() if in_order else None
        self._answers = ModelResponder(self.name, self._statistics, self.budget, self._clock, self._cache, ordered)
        self._strategy = strategy
        self._queue = self._make_queue(limits)
        self._events = WorkerEvents(spec, self._answers, self._queue)
        self._push = self._queue.batcher.push
        if isinstance(self._cache, RemoteModelCache):
            self._cache.serve(self._answers, self.submit_reserved)
        # Decided once, as this is asked for every request.
        self._is_plain = cache is None and ordered is None and self._queue.policies is None
        self._set = InstanceSet(backend, loop, self._events, self._queue.finished_in_thread, models, self.metrics)
        self._events.instances = self._instances = self._set.all
        self._queue.passive = self._set.passive
        self._stopping = False
        self._direct: InlineRunner | None = None
        self._sends_requests = False
        self.regions_from = NO_REGIONS

    def _make_queue(self, limits: RateLimits | None) -> Dispatcher:
        return Dispatcher(self.spec, self._loop, self._answers, self._strategy, limits)

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The model itself."""
        return (self,)

    @property
    def in_flight(self) -> int:
        """Requests that were accepted, or are expected, and not answered for good."""
        return self._answers.in_flight

    @property
    def statistics(self) -> ModelStatistics:
        """The counters, up to date."""
        if self._direct is not None:
            self._direct.settle()
        return self._statistics

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on, or none."""
        self._answers.tracer = None if sampler is None else ModelTracer(sampler, self.spec, self.version)
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
            self._queue.begin(self._set.serving(self._instances))
            self._set.start(self._instances, warmup)
        except BaseException:
            self.close()
            self._loop.call_soon_threadsafe(self.detach)
            raise
        self._direct = self._make_direct()
        self.regions_from = self._find_regions_from()
        self._sends_requests = any(instance.sends_requests for instance in self._instances)

    def _make_direct(self) -> InlineRunner | None:
        """The shortest way, where one instance on the loop is all there is between a request and its answer."""
        first = self._queue.idle[0] if self._queue.idle else None
        is_plain = (
            not self._queue.batches
            and self.spec.sequence is None
            and not self._queue.gate.is_limited
            and self._answers.ordered is None
            and self._cache is None
        )
        if not is_plain or not may_run_directly(self.spec):
            return None
        execute = None if first is None else first.execute
        return None if execute is None else InlineRunner(execute, self._statistics, self._clock)

    def _find_regions_from(self) -> int:
        """What every instance can read from regions itself."""
        if self._cache is not None or self.spec.assembly is not None or self.spec.sequence is not None:
            # Its inputs are part of the key, or are not concatenated row by row, or have controls and states as arrays
            # beside them.
            return NO_REGIONS
        return max((instance.regions_from for instance in self._instances), default=NO_REGIONS)

    def close(self, timeout: float | None = None) -> bool:
        """End every instance after what it runs and close the backend; False when one did not end in time."""
        ended = end_all(self._instances, timeout)
        if ended:
            if self._strategy is not None:
                self._strategy.close()
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

    @property
    def is_busy(self) -> bool:
        """Somebody waits for an answer, or goes on with what was begun here."""
        return self._answers.in_flight > 0

    @property
    def is_drained(self) -> bool:
        """No accepted request is left."""
        return self._answers.is_drained

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as no accepted request is left, at once when there is none."""
        self._answers.when_drained(callback)

    def detach(self) -> None:
        """Give the loop's own resources back; the last call on the loop."""
        self._queue.close()
        self._set.clear()
        if self._cache is not None:
            self._cache.close()

    @property
    def problem(self) -> str:
        """What keeps instances from working, "" when nothing does."""
        return self._set.problem

    # Other instance groups while it serves

    def regroup(self, spec: ModelSpec, config: Any, warmup: Warmup) -> GroupChange[ModelInstance]:
        """Make the instances that the groups of ``spec`` ask for beyond those that are there; they serve nobody yet.

        ``config`` is the completed configuration message with these groups; errors as ``Backend.regroup``.
        """
        before = self._backend.config
        try:
            self._backend.regroup(as_backend_sees(spec), config)
            change = self._set.regroup(spec, warmup)
            try:
                self._queue.join(self._set.serving(change.coming))
            except BaseException:
                self._set.let_go(change.coming)
                raise
            return change
        except BaseException:
            self._backend.regroup(as_backend_sees(self.spec), before)
            raise

    def start_more(self, change: GroupChange[ModelInstance], warmup: Warmup) -> None:
        """Start the instances that came with ``regroup``; called in a loading thread. Errors as ``start``."""
        self._set.start(change.coming, warmup)

    def serve_by(self, spec: ModelSpec, change: GroupChange[ModelInstance]) -> None:
        """Let the instances that came serve, and give those that leave nothing more to do."""
        self.spec = spec
        fresh = self._set.exchange(change)
        if self._direct is not None:
            self._direct.settle()
            self._direct = self._make_direct()
            tracer = self._answers.tracer
            if tracer is not None and self._direct is not None:
                self._direct = self._direct.sampled(tracer.sampler)
        self._queue.serve_by(fresh)

    def stay_with(self, config: Any) -> None:
        """Give up what ``regroup`` began with; ``config`` is the completed message from before."""
        self._backend.regroup(as_backend_sees(self.spec), config)

    @property
    def leaving(self) -> int:
        """How many instances leave that have not ended."""
        return self._set.leaving

    def may_end(self, instance: ModelInstance) -> bool:
        """Whether an instance that leaves has nothing more to do."""
        return self._set.may_end(instance)

    def let_go(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended."""
        self._queue.leave(instances)
        self._set.let_go(instances)

    @property
    def process_ids(self) -> list[int]:
        """The processes that its instances run in, if they do not run in the server's."""
        return [i.pid for i in self._instances if i.pid]

    def tell_batches(self) -> None:
        """From now on tell requests that are steps of ensembles which batch they run in."""
        self._queue.tells_batches = True

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
        if direct is not None and direct.run(request, not_sent):
            return
        if self._stopping:
            raise stopping_error()
        if self._sends_requests and len(request.id) > MAX_ID:
            raise InvalidArgumentError(
                f"the id of a request to model '{self.name}' has {len(request.id)} characters; at most {MAX_ID} reach "
                "the process of a model"
            )
        queue, answers = self._queue, self._answers
        if queue.outage is not None:
            raise UnavailableError(str(queue.outage))
        if self._is_plain:
            answers.admit(request)
            self._push(request)
        elif not self._queued_specially(request):
            return
        self._statistics.pending += 1
        if queue.idle and not queue.turn_is_set:
            queue.wake()

    def expect(self) -> None:
        """A request that is still being read will come: until ``submit_reserved`` or ``release`` is called, this
        model is not closed, even when another one serves in its place by then."""
        self._answers.in_flight += 1

    def submit_reserved(self, request: InferRequest) -> None:
        """``submit``, for a request that was accepted when it was expected."""
        is_stopping, self._stopping = self._stopping, self._stopping and not self._instances
        self._answers.in_flight -= 1
        try:
            self.submit(request)
        finally:
            self._stopping = is_stopping
            self._answers.tell_when_drained()

    def release(self) -> None:
        """The request that was expected does not come."""
        self._answers.in_flight -= 1
        self._answers.tell_when_drained()

    def _answered_from_cache(self, request: InferRequest) -> bool:
        cache = self._cache
        if isinstance(cache, RemoteModelCache):
            if not cache.may_take(request):
                return False
            if request.can_be_refused:
                self._answers.check_room(request.held_bytes, request.received_ns)
            return cache.take(request)
        if cache is None or (outputs := cache.look_up(request)) is None:
            return False
        self._answers.respond_kept(request, outputs)
        return True

    def _queued_specially(self, request: InferRequest) -> bool:
        """Queue a request by the model's policies, and where answers are to come in the order of requests, note it.

        False when it was answered from the cache, or waits for that.
        """
        try:
            if self._answered_from_cache(request):
                return False
            self._answers.admit(request)
            if self._queue.policies is None:
                self._push(request)
            else:
                self._push_by_policy(request)
        except QueueFullError:
            if self._cache is not None:
                self._cache.keep(request, None)
            raise
        if self._answers.ordered is not None:
            self._answers.ordered.expect(request)
        return True

    def _push_by_policy(self, request: InferRequest) -> None:
        try:
            self._queue.push_by_policy(request)
        except BaseException:
            self._answers.let_go(request)
            raise

    def check_room(self, size: int) -> None:
        """Check that a request of at least ``size`` bytes would be taken, before work is done for it.

        Raises:
            QueueFullError: it would not; that counts as a request that failed.
        """
        if self._direct is None:
            self._answers.check_room(size, monotonic_ns())

    def cancel(self, request: InferRequest) -> None:
        """Give a request up: it leaves the queue at once; one that already runs is answered all the same."""
        if self._looked_up_no_more(request):
            self._answers.fail_cancelled(request)
            return
        running = self._queue.cancel(request)
        if running is not None:
            for instance in self._instances:
                instance.cancel(running)

    def _looked_up_no_more(self, request: InferRequest) -> bool:
        if self._cache is None or not self._cache.give_up(request):
            return False
        if self._answers.ordered is not None:
            # It had no place among the answers yet, and gets the one behind those that were handed on.
            self._answers.ordered.expect(request)
        return True

    def hold(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """The caller does not take the responses to a request for now; see ``Recipient.hold``."""
        running = self._queue.as_run(request)
        for instance in self._instances:
            instance.pause(running, backpressure_timeout_ms)

    def go_on(self, request: InferRequest) -> None:
        """The caller takes the responses to a request again."""
        running = self._queue.as_run(request)
        for instance in self._instances:
            instance.resume(running)
