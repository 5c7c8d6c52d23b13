"""A whole analysis: finds the models, runs the searches, and keeps what was measured."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from naiad.analyze.checkpoint import (
    Checkpoint,
    MeasurementPool,
    digest_of,
    latest,
    next_file,
    read_checkpoint,
    write_checkpoint,
)
from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.measure.perf_level import AnalysisStoppedError
from naiad.analyze.measure.source import LoadOptions, MeasurementSource
from naiad.analyze.measurement import Measurement
from naiad.analyze.plan import SearchPlan, plan_of, search_of, sweep_of, sweep_work
from naiad.analyze.progress import AnalyzeProgress, TimeLeft
from naiad.analyze.rank.score import Judge
from naiad.analyze.result import Analysis, ModelProfile, SetOfModels
from naiad.analyze.search.search import MeasurementRequest, Search
from naiad.analyze.search.work import WorkLeft
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.trial import AnalysisTrial
from naiad.perf.load.stop import Stop
from naiad.perf.report.machine import machine_fingerprint

_BASE_SCALE: Final = 4
_MOST_SETS: Final = 11

_Later = Callable[[], WorkLeft]

OpenSource = Callable[[AnalyzeSettings, LoadOptions, Stop], tuple[MeasurementSource, str]]


class AnalyzeRun:
    """One run of ``naiad analyze profile``.

    Args:
        open_source: where measurements come from.
        stop: set when the user wants the run to end.

    Attributes:
        analysis: what was found so far.
    """

    def __init__(
        self,
        settings: AnalyzeSettings,
        open_source: OpenSource,
        progress: AnalyzeProgress | None = None,
        command: Sequence[str] = (),
        stop: Stop | None = None,
    ) -> None:
        self._settings = settings
        self._open_source = open_source
        self._progress = progress or AnalyzeProgress()
        self._stop = stop or Stop()
        self._options = load_options(settings)
        folder = Path(settings["checkpoint_directory"])
        last = latest(folder)
        checkpoint = read_checkpoint(last) if last is not None else Checkpoint()
        self._file = next_file(folder)
        self._last_file = last
        self._digest = digest_of(_what_matters(settings, self._options))
        self._pool = MeasurementPool(checkpoint.measurements, self._digest)
        self._cannot_write = False
        self._time_left = TimeLeft(self._options.window_ms)
        self.analysis = Analysis(
            checkpoint, machine=machine_fingerprint(), command=tuple(command), mode=settings.mode, idle=checkpoint.idle
        )
        if last is not None:
            self._progress.reuses(self._pool.reusable, str(last))

    def run(self) -> Analysis:
        """Measure everything.

        What ends a run on its way, such as a server that is gone, is a failure of the analysis.

        Raises:
            AnalyzeError: nothing could be measured.
        """
        try:
            self._run()
        except AnalysisStoppedError:
            self.analysis.is_interrupted = True
        except AnalyzeError as error:
            if not any(profile.repeats for profile in self.analysis.profiles):
                raise
            self.analysis.failures.append(f"{error}; {self.reusable}")
        return self.analysis

    @property
    def reusable(self) -> str:
        """The measurements that the next run can use, for people."""
        good = sum(not found.error for _, found in self.analysis.checkpoint.measurements)
        if self._last_file is None or not good:
            return "nothing was measured that the next run could use"
        return f"the checkpoint '{self._last_file}' has {good} measurement{'s' * (good > 1)} that the next run uses"

    def _run(self) -> None:
        if self._stop.is_wanted:
            raise AnalysisStoppedError
        source, self.analysis.endpoint = self._open_source(self._settings, self._options, self._stop)
        try:
            self._profile_all(source)
        finally:
            self._close(source)

    def _close(self, source: MeasurementSource) -> None:
        try:
            source.close()
        except AnalyzeError as error:
            self.analysis.failures.append(str(error))

    def _profile_all(self, source: MeasurementSource) -> None:
        settings = self._settings
        idle = source.idle(settings["duration_seconds"])
        self.analysis.checkpoint.idle = self.analysis.idle = idle
        together = settings["run_config_profile_models_concurrently_enable"]
        groups = [settings.models] if together else [(model,) for model in settings.models]
        sets = self._work_of_sets()
        for number, models in enumerate(groups):
            try:
                plan = plan_of(settings, models, source)
            except TrialError as error:
                self._fail(f"{', '.join(model.name for model in models)}: {error}")
                continue
            for subject in plan.space.subjects:
                self.analysis.checkpoint.configs.update({name: dict(c) for name, c in subject.configs.items()})
            profile = ModelProfile(plan.space.subjects, Judge(plan.goals), plan.space.size)
            self.analysis.profiles.append(profile)
            self._profile(source, plan, profile, len(groups) - number - 1, sets)
        if sets.count and len(self.analysis.profiles) > 1:
            self._measure_sets(source)

    def _fail(self, text: str) -> None:
        self.analysis.failures.append(text)
        self._progress.warned(text)

    def _profile(
        self, source: MeasurementSource, plan: SearchPlan, profile: ModelProfile, models: int, sets: WorkLeft
    ) -> None:
        """Measure one model, or several together, with so many other ones and the sets behind them."""

        def others() -> WorkLeft:
            # Nothing is known of them before they are loaded; they are taken to need as much as this one.
            alike = plan.expected + WorkLeft.of(1, _BASE_SCALE) + sweep_work(plan, profile)
            return alike * models + sets

        def with_sweep() -> WorkLeft:
            return sweep_work(plan, profile) + others()

        self._progress.began(profile, plan.text)
        request = MeasurementRequest(plan.space.default_trial(), _BASE_SCALE, plan.expected, "as in the repository")
        profile.default = self._measure(source, profile, request, with_sweep)
        if not profile.default.error:
            profile.judge.base = profile.default
        self._follow(source, profile, search_of(plan, profile.judge), with_sweep)
        profile.searched = set(profile.repeats)
        self._follow(source, profile, sweep_of(plan, profile), others)

    def _follow(self, source: MeasurementSource, profile: ModelProfile, search: Search, later: _Later) -> None:
        request = next(search, None)
        while request is not None:
            found = self._measure(source, profile, request, later)
            try:
                request = search.send(found)
            except StopIteration:
                request = None

    def _measure(
        self, source: MeasurementSource, profile: ModelProfile, request: MeasurementRequest, later: _Later
    ) -> Measurement:
        if self._stop.is_wanted:
            raise AnalysisStoppedError
        trial = request.trial
        name = self.analysis.name(trial)
        found = self._pool.take(trial.key, self._options.window_ms * request.scale)
        if found is not None:
            profile.reused += 1
        else:
            found = self._measured(source, trial, request.scale)
            self._time_left.note(found, request.scale)
            profile.measured += 1
            profile.took_s += found.took_s
            self.analysis.checkpoint.measurements.append((self._digest, found))
            self._save()
        profile.repeats.setdefault(trial, []).append(found)
        left_s = self._time_left.estimate(request.left + later())
        self._progress.measured(name, found, request, left_s)
        return found

    def _measured(self, source: MeasurementSource, trial: AnalysisTrial, scale: int) -> Measurement:
        began = time.monotonic()
        try:
            return source.measure(trial, scale)
        except TrialError as error:
            # One line, for a row of a table.
            return Measurement(trial, error=" ".join(str(error).split()), took_s=time.monotonic() - began)

    def _save(self) -> None:
        try:
            write_checkpoint(self.analysis.checkpoint, self._file)
            self._last_file = self._file
        except OSError as error:
            if not self._cannot_write:
                self._fail(f"cannot write the checkpoint '{self._file}': {error.strerror or error}; the run goes on")
            self._cannot_write = True

    # Which models fit the machine together

    def _work_of_sets(self) -> WorkLeft:
        """How many sets are measured behind everything else."""
        count = len(self._settings.models) if self._settings["search_model_sets"] else 0
        return WorkLeft.of(min(max(2**count - count - 1, 0), _MOST_SETS), _BASE_SCALE)

    def _measure_sets(self, source: MeasurementSource) -> None:
        """Measure every set of the models, each with its best configuration."""
        best = {profile.name: profile.ranked() for profile in self.analysis.profiles}
        usable = {name: rows[0] for name, rows in best.items() if rows}
        sets = [names for size in range(2, len(usable) + 1) for names in itertools.combinations(sorted(usable), size)][
            :_MOST_SETS
        ]
        for number, names in enumerate(sets):
            rows = [usable[name] for name in names]
            trial = AnalysisTrial(
                tuple(variant for row in rows for variant in row.trial.variants),
                tuple(load for row in rows for load in row.trial.loads),
                tuple(dict.fromkeys(variant for row in rows for variant in row.trial.composing)),
            )
            left = WorkLeft.of(len(sets) - number - 1, _BASE_SCALE)
            request = MeasurementRequest(trial, _BASE_SCALE, left, "models beside each other")
            if self._stop.is_wanted:
                raise AnalysisStoppedError
            found = self._measured(source, trial, _BASE_SCALE)
            self._time_left.note(found, _BASE_SCALE)
            self._progress.measured(" + ".join(names), found, request, self._time_left.estimate(left))
            self.analysis.sets.append(SetOfModels(names, found, tuple(row.p99_ms for row in rows)))


def load_options(settings: AnalyzeSettings) -> LoadOptions:
    """How requests are made."""
    flags: Mapping[str, tuple[str, ...]] = {model.name: model.flags for model in settings.models}
    for model in settings.models:
        flags = {**flags, **dict.fromkeys(model.formats, model.flags)}
    return LoadOptions(
        settings["client_protocol"],
        flags,
        settings["window_ms"],
        settings["perf_analyzer_max_auto_adjusts"],
        settings["perf_analyzer_timeout"],
        settings["triton_metrics_url"],
        max(int(settings["monitoring_interval"] * 1000), 10),
        settings["recorded_traffic"] is not None,
    )


def _what_matters(settings: AnalyzeSettings, options: LoadOptions) -> dict[str, Any]:
    """What makes measurements of two runs comparable, beside their trials."""
    plain = replace(options, metrics_url="", window_ms=0, most_adjustments=0)
    return {
        "protocol": plain.protocol,
        "flags": {name: list(words) for name, words in sorted(plain.flags.items())},
        "repository": str(settings["model_repository"] or ""),
        "launch": settings["triton_launch_mode"],
        "server": list(settings.server_flags),
        "endpoint": settings["triton_grpc_endpoint"] if settings["triton_launch_mode"] == "remote" else "",
    }
