"""An ensemble: a model version whose requests are run by other models, step by step (``docs/ensembles.md``).

It has no instances. All that it does happens on the event loop, between the answers of its members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from time import monotonic_ns
from typing import Final

from naiad.cache.local import LocalCache
from naiad.clock import Clock, SystemClock
from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, NaiadError, QueueFullError, ResponseBacklogError
from naiad.execution.batching.reshape import as_model_sees
from naiad.execution.ensemble.fast_run import FastRun
from naiad.execution.ensemble.inflight_limit import InFlightLimit
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
from naiad.request import Array, InferRequest, RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.ensemble.graph import EnsembleError, Graph, depth
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.tracing.settings_store import Sampler

_CHANGES: Final = count(1)


class EnsembleModel:
    """One version of an ensemble, ready to run. Used on the event loop only.

    Args:
        spec: its specification; ``decoupled`` is taken from its members.
        models: where its members are found.
        cache: keeps its answers; ``budget`` bounds the requests to all models.

    Raises:
        NaiadError: its members are not there, or do not fit.
    """

    regions_from = NO_REGIONS

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
        self.name = spec.name
        self.budget = budget or RequestBudget()
        self.metrics = metrics or CustomMetrics()
        self._models = models
        self._store = cache
        self._clock = clock or SystemClock()
        self.statistics = ModelStatistics()
        self._answers = ModelResponder(spec.name, self.statistics, self.budget, self._clock, None, None)
        self._runs: dict[InferRequest, EnsembleRun | FastRun] = {}
        self._expected = 0
        self._stopping = False
        self._sampler: Sampler | None = None
        self._members = Members(spec, models)
        self.spec = _with_graph(with_member_labels(spec), self._members.graph)
        self._members.label(self.spec)
        # Those that requests began with before others took their place.
        self._earlier: list[Members] = []
        self._changed = next(_CHANGES)
        self._seen_inside = 0
        self._cache = self._new_cache()
        self._pace = InFlightLimit(spec.ensemble.max_inflight if spec.ensemble is not None else 0)
        self._has_compiled_plans = not self._pace.is_limited
        self.reshapes = any(tensor.reshape is not None for tensor in spec.inputs.values())

    @property
    def in_flight(self) -> int:
        """Requests that were accepted, or are expected, and not answered for good."""
        return self._answers.in_flight

    @property
    def is_busy(self) -> bool:
        """Somebody waits for an answer."""
        return self._answers.in_flight > 0

    @property
    def is_drained(self) -> bool:
        """No accepted request is left."""
        return self._answers.in_flight == 0

    @property
    def problem(self) -> str:
        """What keeps a member from working, "" when nothing does."""
        return self._members.problem

    # Members

    @property
    def members(self) -> tuple[ServingModel, ...]:
        """Who runs each step."""
        return self._members.targets

    def renew(self) -> bool:
        """Find the members again, if they are others now; whether that changes anything for ensembles of this one.

        Raises:
            NaiadError: one is not there, or does not fit; everything is as before.
        """
        if self._stopping:
            return False
        if not self._members.are_current():
            self._renew()
        found = depth(self.spec, [target.spec for target in self.members])
        is_other = found != self.spec.depth
        if is_other:
            self.spec = replace(self.spec, depth=found)
        return is_other

    def _renew(self) -> None:
        fresh = Members(self.spec, self._models)
        if fresh.graph.is_decoupled != self.spec.decoupled:
            raise EnsembleError(
                f"ensemble '{self.name}' has to be loaded again: its members "
                + ("are decoupled now" if fresh.graph.is_decoupled else "are not decoupled any more")
            )
        # Requests that are expected have not begun: they will begin with these.
        fresh.runs += self._expected
        for _ in range(self._expected):
            self._members.let_go()
        self._earlier = [members for members in (*self._earlier, self._members) if members.runs]
        self._members = fresh
        fresh.label(self.spec)
        self._changed = next(_CHANGES)
        # Other members may answer in another way.
        self._cache = self._new_cache()

    def forget(self, model: ServingModel) -> None:
        """A model is being unloaded; where it is a member, requests that began with it still find it."""
        for members in (*self._earlier, self._members):
            members.forget(model)
            for inner in members.targets:
                if isinstance(inner, EnsembleModel) and inner.is_made_of(model):
                    # A request that will come to it has begun here.
                    members.forget(inner)
                    inner.forget(model)

    def is_made_of(self, model: ServingModel) -> bool:
        """A model is a member, or a member of one."""
        return any(m is model or (isinstance(m, EnsembleModel) and m.is_made_of(model)) for m in self.members)

    @property
    def changed(self) -> int:
        """As ``ServingModel.changed``: of its members, and of those inside of them."""
        if not self._stopping and not self._members.are_current():
            self._renew()
        return max(self._changed, self._changed_inside())

    def _changed_inside(self) -> int:
        return max((target.changed for target in self.members if target.spec.ensemble is not None), default=0)

    def _cache_for(self, request: InferRequest) -> ModelCache | None:
        """Where to look a request up whose members are those of now; None for nowhere."""
        if self._cache is None or request.options.correlation_id:
            # What a sequence gets depends on what came before, and its steps have to see each request.
            return None
        try:
            inside = self._changed_inside()
        except NaiadError:
            # The step that meets it says where it was.
            return None
        if inside != self._seen_inside:
            # Ensembles among its members have other members now.
            self._seen_inside = inside
            self._cache = self._new_cache()
        return self._cache

    def _new_cache(self) -> ModelCache | None:
        if self._store is None or self.spec.decoupled:
            return None
        return ModelCache(self._store, self.spec, self.version, self.statistics)

    # Loading and unloading

    def trace_with(self, sampler: Sampler | None) -> None:
        """Trace the requests that ``sampler`` chooses from now on, or none."""
        self._sampler = sampler
        # Of requests that are answered without a step.
        self._answers.tracer = None if sampler is None else ModelTracer(sampler, self.spec, self.version)

    def stop_accepting(self) -> None:
        """Refuse new requests; those accepted go on."""
        self._stopping = True

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as no accepted request is left, at once when there is none."""
        self._answers.when_drained(callback)

    def close(self, timeout: float | None = None) -> bool:
        """Nothing: it has no instances."""
        return True

    def detach(self) -> None:
        """The last call: give up what is still open, as the server ends."""
        for run in list(self._runs.values()):
            run.cancel()

    @property
    def process_ids(self) -> list[int]:
        """None: those of its members are theirs."""
        return []

    def note_batches(self) -> None:
        """Nothing: an ensemble inside another one tells what its own steps took."""

    # The way of a request

    def submit(self, request: InferRequest) -> None:
        """Take a checked request in; its ``respond`` is called once, or ``respond_part`` until one is final.

        Raises:
            ServerStoppingError: the ensemble no longer accepts requests.
            QueueFullError: the server or the ensemble has too many unanswered requests.
            NaiadError: a member is not there, or does not fit any more.
        """
        if self._stopping:
            raise stopping_error()
        if not self._members.are_current():
            self._renew()
        self._submit(request)

    def _submit(self, request: InferRequest) -> None:
        members = self._members
        plan, lane = members.way(request)
        cache = None if self._cache is None else self._cache_for(request)
        if cache is not None and (outputs := cache.look_up(request)) is not None:
            self._answers.respond_cached(request, outputs)
            return
        try:
            self._answers.admit(request)
        except QueueFullError:
            if cache is not None:
                cache.keep(request, None)
            raise
        members.runs += 1
        trace: RunTrace | None = None
        if self._sampler is not None or request.__class__ is MemberRequest:
            trace = RunTrace.begin(self._sampler, request, self.spec, self.version)
        if lane is not None and trace is None and self._has_compiled_plans and not _asks_more(request.options):
            short = self._runs[request] = FastRun(self, members, lane, request, cache)
            short.begin()
            return
        run = self._runs[request] = EnsembleRun(self, members, plan, request, cache)
        run.trace = trace
        run.begin()

    def expect(self) -> None:
        """As ``LoadedModel.expect``: the members stay, too."""
        self._answers.in_flight += 1
        self._members.runs += 1
        self._expected += 1

    def submit_reserved(self, request: InferRequest) -> None:
        """As ``LoadedModel.submit_reserved``."""
        try:
            # Where one is missing the earlier ones are held for this.
            with suppress(NaiadError):
                if not (self._stopping or self._members.are_current()):
                    self._renew()
            self._submit(request)
        finally:
            self.release()

    def release(self) -> None:
        """As ``LoadedModel.release``."""
        self._answers.in_flight -= 1
        self._expected -= 1
        self._let_go(self._members)
        self._answers.notify_drained()

    def check_room(self, size: int) -> None:
        """As ``LoadedModel.check_room``."""
        self._answers.check_room(size, monotonic_ns())

    def cancel(self, request: InferRequest) -> None:
        """Give a request up: it is answered at once, and its steps leave their queues."""
        run = self._runs.get(request)
        if run is not None:
            run.cancel()

    def hold(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """The caller does not take the responses to a request for now: its steps are told."""
        run = self._runs.get(request)
        if run is not None:
            run.hold(backpressure_timeout_ms)

    def go_on(self, request: InferRequest) -> None:
        """The caller takes the responses to a request again."""
        run = self._runs.get(request)
        if run is not None:
            run.go_on()

    # What runs tell

    def as_inside(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The inputs of a request in the shapes that the steps see (``reshape``)."""
        if not self.reshapes:
            return inputs
        spec = self.spec
        return {n: a.reshape(as_model_sees(a.shape, spec.inputs[n], spec)) for n, a in inputs.items()}

    def replace(self, run: EnsembleRun) -> None:
        """A run has taken the place of the one that its request had."""
        self._runs[run.request] = run

    @property
    def pace(self) -> InFlightLimit:
        """How many requests of a step run at a time."""
        return self._pace

    def succeeded(self, run: EnsembleRun | FastRun, outputs: Mapping[str, Array]) -> None:
        """A request has its one answer."""
        request = run.request
        self._end(run)
        self._count(run)
        if run.cache is not None:
            run.cache.keep(request, outputs)
        if run.trace is not None:
            run.trace.end(request, outputs, None)
        self._answers.respond(request, outputs, None)
        self._answers.notify_drained()

    def send_part(self, run: EnsembleRun, outputs: Mapping[str, Array] | None, is_last: bool) -> None:
        """A request that may get any number of responses gets one, or its end."""
        if is_last:
            self._end(run)
            self._count(run)
            if run.trace is not None:
                run.trace.end(run.request, outputs, None)
        send_part(run.request, outputs, None, is_last)
        if is_last:
            self._answers.notify_drained()

    def failed(self, run: EnsembleRun, error: NaiadError) -> None:
        """A request failed, or was given up."""
        request = run.request
        self._end(run)
        if run.cache is not None:
            run.cache.keep(request, None)
        # Why a step failed is counted with its model.
        reason = error.reason if isinstance(error, (CancelledError, ResponseBacklogError)) else "OTHER"
        self.statistics.count_failure(reason, monotonic_ns() - request.received_ns)
        self._answers.log_error(request, error)
        if run.trace is not None:
            run.trace.end(request, None, error)
        self._answers.respond(request, {}, error)
        self._answers.notify_drained()

    def _end(self, run: EnsembleRun | FastRun) -> None:
        del self._runs[run.request]
        self._answers.let_go(run.request)
        self._let_go(run.members)

    def _let_go(self, members: Members) -> None:
        """A request that began with these members is answered; those of before are forgotten with the last one."""
        members.let_go()
        if self._earlier and not members.runs:
            self._earlier = [earlier for earlier in self._earlier if earlier.runs]

    def _count(self, run: EnsembleRun | FastRun) -> None:
        request, statistics = run.request, self.statistics
        took = run.input_ns, run.infer_ns, run.output_ns
        queue_ns = max(0, run.start_ns - request.queued_ns)
        statistics.count_alone(request.options.rows, monotonic_ns() - request.received_ns, queue_ns, *took)
        statistics.last_inference_ms = self._clock.wall_ms()
        if request.__class__ is MemberRequest:
            request.took = took


def _asks_more(options: RequestOptions) -> bool:
    """Whether what a request says concerns each of its steps."""
    return bool(options.parameters or options.priority or options.timeout_us or options.flags or options.correlation_id)


def _with_graph(spec: ModelSpec, graph: Graph) -> ModelSpec:
    return replace(spec, decoupled=graph.is_decoupled, depth=graph.depth)
