"""From settings and what the server says of its models to a space, a search, and the loads behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Final

from naiad.analyze.measure.source import MeasurementSource
from naiad.analyze.measurement import Measurement
from naiad.analyze.rank.score import Judge
from naiad.analyze.result import ModelProfile
from naiad.analyze.search.brute import BRUTE_SCALE, brute
from naiad.analyze.search.halving import halving, halving_work
from naiad.analyze.search.loads import (
    Forecast,
    SeriesForecast,
    expected_loads,
    forecast_series,
    mean_forecast,
    sweep_loads,
)
from naiad.analyze.search.optuna import OPTUNA_SCALE, TrialLimits, load_optuna, optuna_search
from naiad.analyze.search.quick import quick, quick_work
from naiad.analyze.search.search import Search
from naiad.analyze.search.work import NOTHING, WorkLeft, trials_left
from naiad.analyze.settings.goal import Goal
from naiad.analyze.settings.settings import AnalyzeSettings, ModelSettings
from naiad.analyze.space.build import build_space, powers_of_two
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Space
from naiad.analyze.trial import AnalysisTrial, load_of

SWEEP_SCALE: Final = 2
"""The length of the windows of a sweep, in shortest windows."""
_MORE_OR_LESS: Final = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0)
"""How far a load that is expected to break a latency budget may be off: two measurements differ as much."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The plan for models that are measured together.

    Attributes:
        loads: the concurrencies, or rates, of a sweep; empty where the file lists the loads.
        expected: the work of the search, behind the default.
    """

    settings: AnalyzeSettings
    space: Space
    goals: tuple[Goal, ...]
    loads: tuple[int, ...]
    search: str
    expected: WorkLeft

    @property
    def text(self) -> str:
        """The search, for people."""
        count = f"{self.expected.count + 1:.0f}"
        return f"{self.search} over {self.space.size} configurations and loads, about {count} measurements"


def plan_of(settings: AnalyzeSettings, models: Sequence[ModelSettings], source: MeasurementSource) -> SearchPlan:
    """The plan for models that are measured together.

    Raises:
        TrialError: a model cannot be loaded.
        AnalyzeError: nothing can be measured, or the search cannot be done.
    """
    subjects, sections = [], []
    for model in models:
        configs = {name: source.config(name) for name in model.formats or (model.name,)}
        subjects.append(Subject(model.name, configs, cpu_only=model.cpu_only))
        sections.append(model)
    for model in _composing(settings, subjects):
        if all(model.name != other.name for other in subjects):
            config = source.config(model.name)
            subjects.append(Subject(model.name, {model.name: config}, is_composing=True, cpu_only=model.cpu_only))
            sections.append(model)
    space = build_space(settings, subjects, sections)
    search = settings["run_config_search_mode"]
    if settings["run_config_search_disable"]:
        search = "brute"
    if search == "optuna":
        load_optuna()
    loads = _loads(settings, space)
    expected = _expected(settings, search, space, loads)
    goals = tuple(model.goal for model, subject in zip(sections, subjects, strict=True) if not subject.is_composing)
    return SearchPlan(settings, space, goals, loads, search, expected)


def _composing(settings: AnalyzeSettings, subjects: Sequence[Subject]) -> list[ModelSettings]:
    """The models that are called: those that the file names, and the steps of ensembles."""
    named = {model.name: model for model in settings.composing}
    cpu_only = set(settings["cpu_only_composing_models"])
    for subject in subjects:
        for step in _steps(subject.config):
            named.setdefault(step, ModelSettings(step, (step,), cpu_only=step in cpu_only))
    return list(named.values())


def _steps(config: Mapping[str, Any]) -> list[str]:
    return [str(step["model_name"]) for step in config.get("ensemble_scheduling", {}).get("step", [])]


def _loads(settings: AnalyzeSettings, space: Space) -> tuple[int, ...]:
    listed = {Knob.CONCURRENCY, Knob.RATE} & {dimension.knob for dimension in space.dimensions}
    if listed or settings["recorded_traffic"] is not None or settings.mode == "offline":
        return ()
    low, high = settings["run_config_search_min_concurrency"], space.limits[0].most
    return powers_of_two(low, high)


def _expected(settings: AnalyzeSettings, search: str, space: Space, loads: Sequence[int]) -> WorkLeft:
    if search == "brute":
        if not loads:
            return WorkLeft.of(sum(1 for _ in space.points()), BRUTE_SCALE)
        series = [expected_loads(space.trial(point), loads) for point in space.points()]
        return WorkLeft.of(sum(series), BRUTE_SCALE, len(series))
    if search == "optuna":
        limits, size = trial_limits(settings), space.size
        least, most = min(limits.least_of(size), size), min(limits.most_of(size), size)
        return WorkLeft.of(trials_left(0, 0, least, most, limits.most_idle), OPTUNA_SCALE)
    if search == "quick":
        return quick_work(space)
    return halving_work(space.size, settings["search_measurements"] or 0)


def trial_limits(settings: AnalyzeSettings) -> TrialLimits:
    """The limits of optuna's trials."""
    return TrialLimits(
        settings["min_percentage_of_search_space"],
        settings["max_percentage_of_search_space"],
        settings["optuna_min_trials"],
        settings["optuna_max_trials"],
        settings["optuna_early_exit_threshold"],
    )


def search_of(plan: SearchPlan, judge: Judge) -> Search:
    """The search behind the measurement of the default."""
    settings, space = plan.settings, plan.space
    if plan.search == "brute":
        return brute(space, plan.loads, judge.is_within, judge.utility, _binary_steps(plan))
    if plan.search == "quick":
        return quick(space, judge.utility)
    if plan.search == "optuna":
        return optuna_search(space, judge.utility, trial_limits(settings), settings["search_seed"])
    return halving(space, judge.utility, settings["search_measurements"] or 0, settings["search_seed"])


def sweep_of(plan: SearchPlan, profile: ModelProfile) -> Search:
    """Other loads on the best configurations and on the default."""
    trials, loads = _swept(plan, profile)
    judge, forecast = profile.judge, _forecast(plan, profile, loads)
    return sweep_loads(trials, loads, judge.is_within, judge.utility, SWEEP_SCALE, _binary_steps(plan), forecast)


def _binary_steps(plan: SearchPlan) -> int:
    """Steps towards the greatest load that keeps the constraints."""
    is_limited = any(goal.constraints for goal in plan.goals)
    return int(plan.settings["run_config_search_max_binary_search_steps"]) if is_limited else 0


def sweep_work(plan: SearchPlan, profile: ModelProfile) -> WorkLeft:
    """How much ``sweep_of`` is expected to measure, if the best configurations so far stay the best."""
    trials, loads = _swept(plan, profile)
    if not trials:
        return NOTHING
    forecast = _forecast(plan, profile, loads)
    series = [sum(mean_forecast(forecast(trial, None))) for trial in trials]
    if plan.search != "brute":
        # At the beginning of a search there are fewer than there will be.
        missing = plan.settings["num_configs_per_model"] + 1 - len(trials)
        series += [series[-1]] * min(missing, plan.space.size)
    return WorkLeft.of(sum(series), SWEEP_SCALE, len(series))


def _forecast(plan: SearchPlan, profile: ModelProfile, loads: Sequence[int]) -> Forecast:
    """Forecasts of series of loads, if latencies grow as the load does, more or less."""
    budgets = [goal.latency_budget_ms for goal in plan.goals if goal.latency_budget_ms is not None]
    steps = _binary_steps(plan)

    def forecast(trial: AnalysisTrial, last: Measurement | None) -> list[SeriesForecast]:
        measured = [one for one in profile.repeats.get(trial, ()) if not one.error] if last is None else [last]
        latency_ms = mean(one.p99_ms for one in measured) if measured else 0.0
        if not budgets or not latency_ms:
            return [forecast_series(trial, loads, steps)]
        breaks_at = load_of(measured[0].trial) * min(budgets) / latency_ms
        return [forecast_series(trial, loads, steps, breaks_at * part) for part in _MORE_OR_LESS]

    return forecast


def _swept(plan: SearchPlan, profile: ModelProfile) -> tuple[list[AnalysisTrial], list[int]]:
    if not plan.loads or plan.settings["concurrency_sweep_disable"]:
        return [], []
    default = plan.space.default_trial()
    if plan.search == "brute":
        # All but the default was swept.
        return [default], _thinned(plan.loads, [default])
    best = [row.trial for row in profile.ranked() if not row.trial.is_default]
    best = best[: plan.settings["num_configs_per_model"]]
    return [default, *best], _thinned(plan.loads, best)


def _thinned(loads: Sequence[int], best: Sequence[AnalysisTrial]) -> list[int]:
    """The powers of four up to twice the load of the best: enough for a curve."""
    top = max((load.concurrency for trial in best for load in trial.loads), default=16)
    return [load for place, load in enumerate(loads) if load <= 2 * top and (place % 2 == 0 or load >= top)]
