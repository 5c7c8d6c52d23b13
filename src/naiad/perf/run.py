"""A whole run: describe the model, build the requests, warm up, measure each level, and gather the report."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from naiad.perf.input.build import build_streams
from naiad.perf.interrupts import Interrupts
from naiad.perf.load.exported import exported_inputs
from naiad.perf.load.host import sharpen_timers
from naiad.perf.load.level import LevelRun
from naiad.perf.load.loads import LoadFactory, encode_streams, timestamps_of
from naiad.perf.load.observer import Observer
from naiad.perf.load.search import search_levels, single_level
from naiad.perf.load.sessions import check_sessions
from naiad.perf.load.stop import Stop
from naiad.perf.options import complete_settings
from naiad.perf.placement import in_regions
from naiad.perf.progress import Progress
from naiad.perf.report.machine import machine_fingerprint
from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Report, RequestRecord, Window
from naiad.perf.settings import MeasureSettings, PerfSettings
from naiad.perf.steps import ModelDescription
from naiad.perf.target.metrics import MetricsTarget, find_metrics
from naiad.perf.target.open import at_service, loop_of, opened
from naiad.perf.target.protocol import EncodedStep, PerfTarget, TargetError
from naiad.perf.target.question import query
from naiad.perf.workers.crew import Crew
from naiad.perf.workers.messages import Prepare

_FINITE = (LoadMode.FIXED_SCHEDULE, LoadMode.PERIODIC_CONCURRENCY, LoadMode.SESSION_CONCURRENCY)
_SINGLE = (*_FINITE, LoadMode.CUSTOM_INTERVALS)


class PerfRun:
    """One run of ``naiad perf``.

    Args:
        stop: asks for an end; by default the first Ctrl-C does.

    Attributes:
        report: what was found so far; complete when ``run`` has returned.
        failure: why the run ended early; empty when it did not.
    """

    def __init__(
        self,
        settings: PerfSettings,
        progress: Progress | None = None,
        command: Sequence[str] = (),
        stop: Stop | None = None,
    ) -> None:
        self.settings = at_service(settings)
        self.report = Report(command=tuple(command))
        self.failure = ""
        self._progress = progress or Progress()
        self._takes_signals = stop is None
        self._stop = stop or Stop()

    def run(self) -> Report:
        """Measure all levels.

        Raises:
            TargetError: the server cannot be measured.
            PerfInputError: the input data do not fit the model.
            PerfOptionError: the options do not fit the model.
            KeyboardInterrupt: the user stopped it twice.
        """
        sharpen_timers()
        with opened(self.settings) as target:
            model = target.describe()
            self.settings = complete_settings(self.settings, model)
            # Before that a Ctrl-C ends the process, as there is nothing to print.
            with Interrupts(self._stop) if self._takes_signals else nullcontext():
                self._run(target, model)
        self.report.is_interrupted = self._stop.is_wanted
        return self.report

    def _run(self, target: PerfTarget, model: ModelDescription) -> None:
        settings = self.settings
        self._begin_report(target, model)
        streams = build_streams(settings.input, model, streams=1)
        if settings.load.mode is LoadMode.SESSION_CONCURRENCY:
            check_sessions(streams, int(settings.load.levels.start))
        with in_regions(settings.input, target, model, streams) as placed:
            encoded = encode_streams(target, placed.streams)
            # Before the warm-up: what is wrong with the load is said before the first request.
            factory = LoadFactory(settings, target, model, encoded, timestamps_of(placed.streams))
            self._warm_up(target, model, encoded)
            if settings.target.trace:
                target.change_trace(settings.target.trace)
            metrics, note = self._find_metrics(model)
            exported = None if settings.output.profile_export_file is None else exported_inputs(streams)
            job = Prepare(settings, tuple(placed.streams), placed.outputs, exported)
            with Crew(settings, factory, job) as crew:
                self._measure(crew, factory, target, metrics, note)

    def _begin_report(self, target: PerfTarget, model: ModelDescription) -> None:
        settings, report = self.settings, self.report
        report.model, report.version = model.name, settings.target.version or model.version
        report.service_kind, report.protocol = settings.target.service_kind, target.protocol
        report.endpoint = target.endpoint
        report.is_async = bool(settings.target.is_async)
        report.is_decoupled, report.is_sequence = model.is_decoupled, model.is_sequence
        report.instances = model.instances
        report.machine = machine_fingerprint()
        self._progress.began(report, settings)

    def _warm_up(self, target: PerfTarget, model: ModelDescription, encoded: Sequence[Sequence[EncodedStep]]) -> None:
        """Wait for a first response, however long it takes, and for those that were asked for beside it."""
        step = encoded[0][0]
        request = step.plain
        if model.is_sequence:
            first_id = self.settings.load.sequence_id_range[0]
            request = step.in_sequence(first_id, is_first=True, is_last=True)
        what = f"the first request to the model '{model.name}' at {target.endpoint}"
        for number in range(1 + self.settings.measure.warmup_requests):
            self._stop_if_wanted()
            took = query(partial(target.open, places=1), request, what, None, self._waited, partial(loop_of, target))
            if number == 0:
                self.report.warmup_ns = took
                self._progress.warmed_up(took / 1e9)

    def _waited(self, seconds: float) -> None:
        self._progress.waiting(seconds)
        self._stop_if_wanted()

    def _stop_if_wanted(self) -> None:
        if self._stop.is_wanted:
            raise TargetError("stopped by the user before the first response")

    def _find_metrics(self, model: ModelDescription) -> tuple[MetricsTarget | None, str]:
        settings = self.settings.measure
        if not settings.collect_metrics or settings.server_pid is not None:
            return None, ""
        try:
            found, why = find_metrics(settings.metrics_url, model.name)
        except TargetError as error:
            if "collect-metrics" in self.settings.given:
                raise TargetError(f"{error}; leave --collect-metrics out to measure without the metrics") from None
            found, why = None, str(error)
        if {"collect-metrics", "metrics-url"} & self.settings.given:
            return found, why
        self.report.usage_missing = why
        return found, ""

    def _measure(
        self, crew: Crew, factory: LoadFactory, target: PerfTarget, metrics: MetricsTarget | None, note: str
    ) -> None:
        plan = self.settings.load
        search = single_level(plan.levels.start) if plan.mode in _SINGLE else search_levels(plan)
        value: float | None = next(search)
        # What is there now stays: a full collection over it would hold requests back.
        gc.collect()
        gc.freeze()
        while value is not None and not self._stop.is_wanted and not self.failure:
            result, records = self._measure_level(crew, target, metrics, factory.level(value))
            while crew.grows(result) and not self._stop.is_wanted and not self.failure:
                result, records = self._measure_level(crew, target, metrics, factory.level(value))
            if not result.windows:
                # Stopped before there was anything to show.
                return
            self.report.records += records
            if note:
                result.notes.append(note)
            self.report.levels.append(result)
            self._progress.level_done(result)
            try:
                value = search.send(result.is_within_limit)
            except StopIteration:
                value = None

    def _measure_level(
        self, crew: Crew, target: PerfTarget, metrics: MetricsTarget | None, level: LoadLevel
    ) -> tuple[LevelResult, list[RequestRecord]]:
        settings = self.settings
        with loop_of(target) as loop:
            load = crew.open(loop, level)
            observer = Observer(loop, target, settings.measure, metrics)
            run = LevelRun(
                loop,
                load,
                observer,
                settings.measure,
                level,
                settings.input.batch_size,
                self._progress,
                self._stop,
                is_single=bool(settings.measure.total_requests) or level.mode in _FINITE,
                limit_ms=settings.load.latency_limit_ms,
                first_ns=self.report.warmup_ns or 0,
            )
            result = run.run()
            records = load.recorder.records(len(self.report.levels))
        self.failure = loop.failure or _why_empty(result, settings.measure, is_stopped=self._stop.is_wanted)
        return result, records


def _why_failing(last: Window) -> str:
    """Why a level with successes ended early: its last window has none; empty if it has."""
    if last.requests or not last.errors:
        return ""
    (kind, cause), count = last.errors.most_common(1)[0]
    return (
        f"the server answers nothing but errors any more: all {last.errors.total()} requests of the last window "
        f"failed, {count} of them with {kind}: {cause}"
    )


def _why_empty(result: LevelResult, settings: MeasureSettings, *, is_stopped: bool) -> str:
    """Why a level, or its last window, has no success; empty if it has one, or if the user ended it."""
    merged = result.merged
    if merged.requests:
        return "" if is_stopped else _why_failing(result.windows[-1])
    if merged.errors:
        (kind, cause), count = merged.errors.most_common(1)[0]
        return f"all {merged.errors.total()} requests failed, {count} of them with {kind}: {cause}"
    if is_stopped or not result.windows:
        return ""
    length_s = settings.interval_ms / 1e3
    return (
        f"no response came within {len(result.windows)} windows of {length_s:g} s: make them longer with "
        "--measurement-interval"
    )


def run_perf(settings: PerfSettings, progress: Progress | None = None, command: Sequence[str] = ()) -> Report:
    """Measure as the settings say; errors as ``PerfRun.run``."""
    return PerfRun(settings, progress, command).run()
