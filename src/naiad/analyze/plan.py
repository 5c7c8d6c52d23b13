"""From settings and what the server says of its models to a space, a search, and the loads behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from naiad.analyze.measure.source import MeasurementSource
from naiad.analyze.rank.score import Judge
from naiad.analyze.result import ModelProfile
from naiad.analyze.search.brute import brute
from naiad.analyze.search.halving import budget_of, halving
from naiad.analyze.search.loads import sweep_loads
from naiad.analyze.search.optuna import TrialLimits, load_optuna, optuna_search
from naiad.analyze.search.quick import quick
from naiad.analyze.search.search import Search
from naiad.analyze.settings.goal import Goal
from naiad.analyze.settings.settings import AnalyzeSettings, ModelSettings
from naiad.analyze.space.build import build_space, powers_of_two
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Space
from naiad.analyze.trial import AnalysisTrial

_SWEEP_TRIES = 6


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The plan for models that are measured together.

    Attributes:
        loads: the concurrencies, or rates, of a sweep; empty where the file lists the loads.
        expected: about how many measurements the search takes.
        later: about how many come behind it.
    """

    settings: AnalyzeSettings
    space: Space
    goals: tuple[Goal, ...]
    loads: tuple[int, ...]
    search: str
    expected: int
    later: int

    @property
    def text(self) -> str:
        """The search, for people."""
        return f"{self.search} over {self.space.size} configurations and loads, about {self.expected} measurements"


def plan_of(settings: AnalyzeSettings, models: Sequence[ModelSettings], source: MeasurementSource) -> SearchPlan:
    """The plan for models that are measured together.

    Raises:
        AnalyzeError: a model is not there, or the search cannot be done.
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
    sweeps = bool(loads) and search != "brute" and not settings["concurrency_sweep_disable"]
    later = (settings["num_configs_per_model"] + 1) * _SWEEP_TRIES if sweeps else 0
    goals = tuple(model.goal for model, subject in zip(sections, subjects, strict=True) if not subject.is_composing)
    return SearchPlan(settings, space, goals, loads, search, expected, later)


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


def _expected(settings: AnalyzeSettings, search: str, space: Space, loads: Sequence[int]) -> int:
    if search == "brute":
        return space.size * (min(len(loads), _SWEEP_TRIES) if loads else 1)
    if search == "optuna":
        return trial_limits(settings).most_of(space.size)
    if search == "quick":
        return min(6 * len(space.dimensions) + 4, space.size)
    return settings["search_measurements"] or budget_of(space.size)


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
        steps = settings["run_config_search_max_binary_search_steps"]
        return brute(space, plan.loads, judge.is_within, judge.utility, steps)
    if plan.search == "quick":
        return quick(space, judge.utility)
    if plan.search == "optuna":
        return optuna_search(space, judge.utility, trial_limits(settings), settings["search_seed"])
    return halving(space, judge.utility, settings["search_measurements"] or 0, settings["search_seed"])


def sweep_of(plan: SearchPlan, profile: ModelProfile, best: Sequence[AnalysisTrial]) -> Search:
    """Other loads on the best configurations and on the default."""
    settings = plan.settings
    if not plan.loads or settings["concurrency_sweep_disable"]:
        return _nothing()
    # Brute force has swept all but the default.
    trials = [plan.space.default_trial(), *(best if plan.search != "brute" else ())]
    steps = settings["run_config_search_max_binary_search_steps"]
    return sweep_loads(
        trials,
        _thinned(plan.loads, best),
        profile.judge.is_within,
        profile.judge.utility,
        binary_steps=steps,
    )


def _thinned(loads: Sequence[int], best: Sequence[AnalysisTrial]) -> list[int]:
    """The powers of four up to twice the load of the best: enough for a curve."""
    top = max((load.concurrency for trial in best for load in trial.loads), default=16)
    return [load for place, load in enumerate(loads) if load <= 2 * top and (place % 2 == 0 or load >= top)]


def _nothing() -> Search:
    yield from ()
