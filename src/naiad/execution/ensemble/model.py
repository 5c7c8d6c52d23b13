"""An ensemble: a model version whose requests are run by other models, step by step (``docs/ensembles.md``).

It has no instances. Its work is done on the event loop, between the responses of its members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic_ns

from naiad.cache.local import LocalCache
from naiad.clock import Clock, SystemClock
from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, NaiadError, QueueFullError, ResponseBacklogError
from naiad.execution.batching.reshape import as_model_sees
from naiad.execution.ensemble.fast_run import FastRun
from naiad.execution.ensemble.flow_control import InFlightLimit
from naiad.execution.ensemble.host import ActiveRun
from naiad.execution.ensemble.labels import with_member_labels
from naiad.execution.ensemble.members import Members
from naiad.execution.ensemble.run import EnsembleRun
from naiad.execution.ensemble.step_request import MemberRequest
from naiad.execution.ensemble.tracing import RunTrace
from naiad.execution.instances.model_instance import NO_REGIONS
from naiad.execution.model.cache import ModelCache
from naiad.execution.model.interface import ServingModel
from naiad.execution.model.responder import ModelResponder, send_part, stopping_error
from naiad.execution.model.tracing import ModelTracer
from naiad.execution.model_directory import ModelDirectory
from naiad.request import Array, InferRequest, RequestOptions, TracedOptions, UnbatchedTimes
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.ensemble.graph import EnsembleError, Graph, depth
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.latencies import Latencies
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from naiad.telemetry.slow.recorder import SlowRequests
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.worker.ipc.arena import Arena


class EnsembleModel:
    """One version of an ensemble, ready to run. Used on the event loop only.

    Args:
        spec: its specification; ``decoupled`` is replaced by that of its members.
        models: finds the members by name.
        cache: caches its responses.
        budget: bounds the requests to all models.

    Attributes:
        in_flight_limit: bounds the requests of each step.
        reshapes: an input has another shape for the steps than for callers.

    Raises:
        NaiadError: a member is not loaded, or does not fit.
    """

    regions_from = NO_REGIONS
    device = None
    may_write_inputs = False
    groups = None

    def __init__(
        self,
        spec: ModelSpec,
        version: int,
        models: ModelDirectory,
        cache: LocalCache | None = None,
        budget: RequestBudget | None = None,
        clock: Clock | None = None,
        metrics: CustomMetrics | None = None,
    ) -> None:
        self.version = version
        self.namespace = ""
        self.replicas = 0
        self.name = spec.name
        self.budget = budget or RequestBudget()
        self.metrics = metrics or CustomMetrics()
        self._models = models
        self._store = cache
        self._clock = clock or SystemClock()
        self.statistics = ModelStatistics()
        self._responder = ModelResponder(spec.name, self.statistics, self.budget, self._clock, None, None)
        self._runs: dict[InferRequest, ActiveRun] = {}
        self._reserved = 0
        self._notes_times = False
        self._stopping = False
        self._sampler: Sampler | None = None
        self._members = Members(spec, models)
        self.spec = _with_graph(with_member_labels(spec), self._members.graph)
        self._members.label(self.spec)
        # Earlier snapshots of the members, with which open requests began.
        self._earlier: list[Members] = []
        # Set by ``mark_stale``, so that no request has to look its members up.
        self._is_stale = True
        self._seen_parts: tuple[ServingModel, ...] = ()
        self._cache = self._new_cache()
        self.in_flight_limit = InFlightLimit(spec.ensemble.max_inflight if spec.ensemble is not None else 0)
        self._has_compiled_plans = not self.in_flight_limit.is_limited
        self.reshapes = any(tensor.reshape is not None for tensor in spec.inputs.values())

    @property
    def in_flight(self) -> int:
        """Requests that were accepted, or are expected, and have no final response."""
        return self._responder.in_flight

    @property
    def is_busy(self) -> bool:
        """Whether a caller waits for a response."""
        return self._responder.in_flight > 0

    @property
    def is_drained(self) -> bool:
        """Whether no accepted request is open."""
        return self._responder.in_flight == 0

    @property
    def problem(self) -> str:
        """Why members cannot run requests, "" when all can."""
        return self._members.problem

    @property
    def arena(self) -> Arena | None:
        """The memory of the step that alone reads its inputs and may change them; None for any memory."""
        reader = self._members.only_reader
        # The cache and a trace read the inputs as they came.
        if reader < 0 or self._store is not None or (self._sampler is not None and self._sampler.tensors):
            return None
        return self._members.targets[reader].arena

    # Members

    @property
    def members(self) -> tuple[ServingModel, ...]:
        """The model of each step."""
        return self._members.targets

    def refresh_members(self) -> bool:
        """Find the members again; whether that changes anything for ensembles with this one as a member.

        Raises:
            NaiadError: a member is not loaded, or does not fit; nothing has changed.
        """
        if self._stopping:
            return False
        self._refresh()
        found = depth(self.spec, [target.spec for target in self.members])
        is_other = found != self.spec.depth
        if is_other:
            # The depth of the ensembles around this one depends on it.
            self.spec = replace(self.spec, depth=found)
        return is_other

    def mark_stale(self) -> None:
        """Find the members again before the next request, for a model came or goes."""
        self._is_stale = True

    def _refresh(self) -> None:
        """Find the members again; stays stale, so that the next request tries again, when one cannot be used.

        Raises:
            NaiadError: a member is not there, or does not fit any more.
        """
        if not self._members.are_current():
            self._replace_members()
        if self._cache is not None:
            try:
                parts = self._find_parts()
            except NaiadError:
                # The step that runs into it names itself in its error. The cache is not used meanwhile.
                return
            if parts != self._seen_parts:
                # Ensembles among the members have other members now, which may respond differently.
                self._seen_parts = parts
                self._cache = self._new_cache()
        self._is_stale = False

    def _replace_members(self) -> None:
        fresh = Members(self.spec, self._models)
        if fresh.graph.is_decoupled != self.spec.decoupled:
            raise EnsembleError(
                f"ensemble '{self.name}' has to be loaded again: its members "
                + ("are decoupled now" if fresh.graph.is_decoupled else "are not decoupled any more")
            )
        # Expected requests have not begun: they will begin with the new members.
        fresh.runs += self._reserved
        for _ in range(self._reserved):
            self._members.run_ended()
        self._earlier = [members for members in (*self._earlier, self._members) if members.runs]
        self._members = fresh
        fresh.label(self.spec)
        # Other members may respond differently.
        self._cache = self._new_cache()

    def forget(self, model: ServingModel) -> None:
        """Keep a member that is being unloaded running for the requests that began with it."""
        for members in (*self._earlier, self._members):
            members.reserve(model)
            for inner in members.targets:
                if isinstance(inner, EnsembleModel) and inner.is_made_of(model):
                    # A request that has begun here may come to the inner ensemble only later.
                    members.reserve(inner)
                    inner.forget(model)

    def is_made_of(self, model: ServingModel) -> bool:
        """Whether a model is a member, or a member of a member."""
        return any(m is model or (isinstance(m, EnsembleModel) and m.is_made_of(model)) for m in self.members)

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The models that run its steps, and those that run the steps of ensembles among them."""
        if self._is_stale and not self._stopping:
            self._refresh()
        return self._find_parts()

    def _find_parts(self) -> tuple[ServingModel, ...]:
        return tuple(part for target in self.members for part in target.parts)

    def _cache_for(self, request: InferRequest) -> ModelCache | None:
        """The cache for a request; None for no cache."""
        if self._is_stale or request.options.correlation_id:
            # Responses to a sequence depend on its earlier requests, and the steps have to see each request.
            return None
        return self._cache

    def _new_cache(self) -> ModelCache | None:
        if self._store is None or self.spec.decoupled:
            return None
        return ModelCache(self._store, self.spec, self.version, self.statistics)

    # Loading and unloading

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on; None for no request."""
        self._sampler = sampler
        # Traces requests without steps: those with a cached response.
        self._responder.tracer = None if sampler is None else ModelTracer(sampler, self.spec, self.version)

    def keep_latencies(self, latencies: Latencies | RecentLatencies | None) -> None:
        """Keep the distributions of the latencies from now on."""
        self.statistics.latencies = latencies

    def record_slow(self, requests: SlowRequests) -> None:
        """Do nothing: its members record the requests that they get."""

    def log_batches(self, is_on: bool) -> None:
        """Do nothing: its members log their batches."""

    def stop_accepting(self) -> None:
        """Refuse new requests; those that were accepted continue."""
        self._stopping = True

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back once no accepted request is open, at once when none is."""
        self._responder.when_drained(callback)

    def close(self, timeout: float | None = None) -> bool:
        """Do nothing: there are no instances."""
        return True

    def detach(self) -> None:
        """Cancel the requests that are still open, as the server ends. The last call."""
        # A copy: a cancelled run removes itself.
        for run in list(self._runs.values()):
            run.cancel()

    @property
    def instance_states(self) -> dict[str, int]:
        """Empty: the instances belong to the members."""
        return {}

    @property
    def process_ids(self) -> list[int]:
        """Empty: the processes belong to the members."""
        return []

    def note_batches(self) -> None:
        """From now on let requests of clients note the times of their steps.

        Requests of ensembles around it have them in ``MemberRequest.took``.
        """
        self._notes_times = True

    # Requests

    def submit(self, request: InferRequest) -> None:
        """Run a checked request; its ``respond`` is called once, or ``respond_part`` until one is final.

        Raises:
            ServerStoppingError: the ensemble no longer accepts requests.
            QueueFullError: the server or the ensemble has too many open requests.
            NaiadError: a member is not loaded, or does not fit any more.
        """
        if self._stopping:
            raise stopping_error()
        if self._is_stale:
            self._refresh()
        self._submit(request)

    def _submit(self, request: InferRequest) -> None:
        members = self._members
        plan, compiled = members.plan_for(request)
        cache = None if self._cache is None else self._cache_for(request)
        if cache is not None and (outputs := cache.look_up(request)) is not None:
            self._responder.respond_cached(request, outputs)
            return
        # After the look-up: a cached response needs no room.
        try:
            self._responder.admit(request)
        except QueueFullError:
            if cache is not None:
                cache.keep(request, None)
            raise
        members.runs += 1
        trace: RunTrace | None = None
        is_within = request.__class__ is MemberRequest or request.options.__class__ is TracedOptions
        if self._sampler is not None or is_within:
            trace = RunTrace.begin(self._sampler, request, self.spec, self.version)
        if (
            compiled is not None
            and trace is None
            and self._has_compiled_plans
            and not _has_step_options(request.options)
        ):
            short = self._runs[request] = FastRun(self, members, compiled, request, cache)
            short.begin()
            return
        run = self._runs[request] = EnsembleRun(self, members, plan, request, cache)
        run.trace = trace
        run.begin()

    def reserve(self) -> None:
        """Count a request that will come; until then its members keep running."""
        self._responder.in_flight += 1
        self._members.runs += 1
        self._reserved += 1

    def submit_reserved(self, request: InferRequest) -> None:
        """Run a request that ``reserve`` has announced; it is not refused for being stopped. Errors as ``submit``."""
        try:
            # When a member is missing, the earlier members are still reserved for this request.
            with suppress(NaiadError):
                if self._is_stale and not self._stopping:
                    self._refresh()
            self._submit(request)
        finally:
            self.release()

    def release(self) -> None:
        """End what ``reserve`` has begun: the request came, or will not come."""
        self._responder.in_flight -= 1
        self._reserved -= 1
        # ``_replace_members`` moves reserved places to the current members, so these count this one.
        self._leave(self._members)
        self._responder.notify_drained()

    def check_room(self, size: int) -> None:
        """Check that a request of ``size`` bytes would be accepted; errors as ``submit``."""
        self._responder.check_room(size, monotonic_ns())

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request: it fails at once, and its steps leave their queues."""
        run = self._runs.get(request)
        if run is not None:
            run.cancel()

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Pause the steps of a request whose caller does not take the responses."""
        run = self._runs.get(request)
        if run is not None:
            run.pause(backpressure_timeout_ms)

    def resume(self, request: InferRequest) -> None:
        """Resume the steps of a request whose caller takes the responses again."""
        run = self._runs.get(request)
        if run is not None:
            run.resume()

    # Calls of runs

    def reshape_inputs(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The inputs of a request in the shapes that the steps read (``reshape``)."""
        if not self.reshapes:
            return inputs
        spec = self.spec
        return {n: a.reshape(as_model_sees(a.shape, spec.inputs[n], spec)) for n, a in inputs.items()}

    def replace(self, run: ActiveRun) -> None:
        """Register a run in place of the one that its request had."""
        self._runs[run.request] = run

    def succeeded(self, run: ActiveRun, outputs: Mapping[str, Array]) -> None:
        """Send the only response to a request."""
        request = run.request
        # Before the response: the caller's next request may come within it and needs the room.
        self._end(run)
        self._count(run)
        if run.cache is not None:
            run.cache.keep(request, outputs)
        if run.trace is not None:
            run.trace.end(request, outputs, None)
        if self._notes_times and request.carrier:
            request.joined(_times_of(run))
        self._responder.respond(request, outputs, None)
        self._responder.notify_drained()

    def send_part(self, run: ActiveRun, outputs: Mapping[str, Array] | None, is_last: bool, is_first: bool) -> None:
        """Send one of any number of responses to a request, or with None only their end."""
        if self.statistics.latencies is not None and is_first:
            self.statistics.latencies.first(monotonic_ns() - run.request.received_ns)
        if is_last:
            self._end(run)
            self._count(run)
            if run.trace is not None:
                run.trace.end(run.request, outputs, None)
        send_part(run.request, outputs, None, is_last)
        if is_last:
            self._responder.notify_drained()

    def failed(self, run: ActiveRun, error: NaiadError) -> None:
        """Send an error as the response to a request."""
        request = run.request
        self._end(run)
        if run.cache is not None:
            run.cache.keep(request, None)
        # The reason why a step failed is counted with its model.
        reason = error.reason if isinstance(error, (CancelledError, ResponseBacklogError)) else "OTHER"
        self.statistics.count_failure(reason, monotonic_ns() - request.received_ns)
        self._responder.log_error(request, error)
        if run.trace is not None:
            run.trace.end(request, None, error)
        self._responder.respond(request, {}, error)
        self._responder.notify_drained()

    def _end(self, run: ActiveRun) -> None:
        del self._runs[run.request]
        self._responder.release(run.request)
        self._leave(run.members)

    def _leave(self, members: Members) -> None:
        """Count a request that began with these members; earlier members are dropped with their last request."""
        members.run_ended()
        if self._earlier and not members.runs:
            self._earlier = [earlier for earlier in self._earlier if earlier.runs]

    def _count(self, run: ActiveRun) -> None:
        request, statistics = run.request, self.statistics
        took = run.input_ns, run.infer_ns, run.output_ns
        queue_ns = max(0, run.start_ns - request.queued_ns)
        statistics.count_alone(request.options.rows, monotonic_ns() - request.received_ns, queue_ns, *took)
        statistics.last_inference_ms = self._clock.wall_ms()
        if request.__class__ is MemberRequest:
            request.took = took


def _times_of(run: ActiveRun) -> UnbatchedTimes:
    """The times of all steps, as if they had run one behind the other and ended now."""
    end_ns = monotonic_ns()
    infer_ns = end_ns - run.output_ns
    input_ns = infer_ns - run.infer_ns
    return UnbatchedTimes(0, input_ns - run.input_ns, input_ns, infer_ns, end_ns)


def _has_step_options(options: RequestOptions) -> bool:
    """Whether a request has options that apply to each of its steps."""
    return bool(options.parameters or options.priority or options.timeout_us or options.flags or options.correlation_id)


def _with_graph(spec: ModelSpec, graph: Graph) -> ModelSpec:
    return replace(spec, decoupled=graph.is_decoupled, depth=graph.depth)
