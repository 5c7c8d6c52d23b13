"""The time that an analysis says is left, in replays of whole runs on recorded models."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
import yaml

from naiad.analyze.measurement import Measurement, ModelFigures
from naiad.analyze.progress import AnalyzeProgress, TimeLeft
from naiad.analyze.run import AnalyzeRun
from naiad.analyze.search.loads import forecast_series
from naiad.analyze.search.search import MeasurementRequest
from naiad.analyze.search.work import WorkLeft, trials_left
from naiad.analyze.settings.read import parse_analyze
from naiad.analyze.trial import AnalysisTrial, ModelLoad, Variant
from naiad.cli.analyze_progress import duration_text
from support.recorded_measurements import NAMES, ReplayedSource

TIMES = Path(__file__).parent / "recorded_times"
"""What each measurement of whole runs took, and what was left behind it: examples, on a busy machine of two cores."""
SPACE: dict[str, Any] = {
    "run_config_search_max_instance_count": 4,
    "run_config_search_max_model_batch_size": 16,
    "search_delay_microseconds": [0, 500, 2000],
    "run_config_search_max_concurrency": 128,
    "duration_seconds": 0,
}
SEARCHES: dict[str, dict[str, Any]] = {
    "halving": {},
    "halving without other loads": {"concurrency_sweep_disable": True},
    "halving with a budget": {"latency_budget": 100},
    "brute": {"run_config_search_mode": "brute", "search_delay_microseconds": [0]},
    "listed": {"run_config_search_disable": True},
    "quick": {"run_config_search_mode": "quick"},
    "optuna": {"run_config_search_mode": "optuna", "optuna_min_trials": 10, "optuna_max_trials": 60},
}

LOOSE = {"quick": (0.37, 0.1, 0.1), "optuna": (0.45, 0.45, 0.25), "halving with a budget": (0.3, 0.15, 0.18)}
"""How far off it may be after a quarter, a half and three quarters where nobody knows how long the run will be: how far
a climb goes, when nothing better is found any more, and which of the best configurations break a limit."""


class Clock(AnalyzeProgress):
    """Notes when each measurement ended, and what was said to be left then."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.said: list[tuple[float, float]] = []

    def measured(self, name: str, found: Measurement, request: MeasurementRequest, left_s: float | None) -> None:
        self.passed_s += found.took_s
        assert left_s is not None
        self.said.append((self.passed_s, left_s))

    def error_at(self, part: float) -> float:
        """How far off the estimate was when a part of the run had passed, as a part of what was left."""
        passed_s, left_s = next(said for said in self.said if said[0] >= part * self.passed_s)
        return left_s / (self.passed_s - passed_s) - 1


def replayed(folder: Path, recording: str, models: tuple[str, ...] = (), **keys: Any) -> Clock:
    folder.mkdir()
    file = folder / "config.yaml"
    places = {"checkpoint_directory": str(folder / "checkpoints"), "model_repository": "models"}
    file.write_text(yaml.safe_dump({**SPACE, **places, "profile_models": list(models or (recording,)), **keys}))
    clock = Clock()
    settings = parse_analyze(["profile", "-f", str(file)])
    run = AnalyzeRun(settings, lambda *_: (ReplayedSource(recording), "a replay"), clock)
    run.run()
    return clock


@pytest.mark.parametrize("file", sorted(TIMES.glob("*.json")), ids=lambda file: file.stem)
def test_recorded_times_are_foretold(file: Path) -> None:
    rows = json.loads(file.read_text())["rows"]
    estimate, errors = TimeLeft(150), []
    took = [row[0] for row in rows]
    for number, (took_s, windows, window_ms, scale, setup, rate, counts, changes) in enumerate(rows):
        trial = AnalysisTrial((Variant.of("a", {"number": setup}),), (ModelLoad(),))
        found = Measurement(trial, [ModelFigures("a", {"perf_throughput": rate})], window_ms=window_ms, windows=windows)
        found.took_s = took_s
        estimate.note(found, scale)
        left_s = estimate.estimate(WorkLeft(dict(counts), changes))
        rest_s = sum(took[number + 1 :])
        if sum(took[: number + 1]) >= 0.25 * sum(took) and rest_s >= 5:
            assert left_s is not None
            errors.append(abs(left_s / rest_s - 1))
    assert median(errors) <= 0.15, errors
    # Some formats load ten times as long as others, and nobody knows which of the last loads break a budget.
    assert sorted(errors)[int(0.9 * len(errors))] <= 0.35, errors


def test_one_slow_load_does_not_stand_for_the_others() -> None:
    estimate = TimeLeft(150)
    for number, change_s in enumerate((0.5, 0.4, 9.5, 0.6)):
        trial = AnalysisTrial((Variant.of("a", {"number": number}),), (ModelLoad(),))
        found = Measurement(trial, [ModelFigures("a", {"perf_throughput": 100.0})], window_ms=150, windows=4)
        found.took_s = change_s + 0.6
        estimate.note(found, 1)
    # Ten more with a change of half a second, and four windows each.
    assert estimate.estimate(WorkLeft.of(10, 1)) == pytest.approx(11.0)


def test_windows_that_would_hold_too_few_requests_are_expected_to_be_longer() -> None:
    estimate = TimeLeft(100)
    trial = AnalysisTrial((Variant.of("a", {}),), (ModelLoad(),))
    found = Measurement(trial, [ModelFigures("a", {"perf_throughput": 10.0})], window_ms=1600, windows=3)
    found.took_s = 4.8
    estimate.note(found, 8)
    # Twice: eight requests take 0.8 s, which 8 of the shortest windows are longer than and 2 of them shorter.
    assert estimate.estimate(WorkLeft.of(1, 8)) == pytest.approx(4.8)
    assert estimate.estimate(WorkLeft.of(1, 2)) == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("breaks_at", "count", "steps"),
    [
        (None, 8, 2.5),  # nothing is known
        (0.5, 8, 0),  # the first load breaks the budget already
        (10, 5, 3),  # 16 breaks it and 8 does not: 12, 10 or 14, 9 or 11 ...
        (10_000, 8, 0),
    ],
)
def test_a_series_of_loads_ends_where_it_breaks_the_budget(breaks_at: float | None, count: int, steps: float) -> None:
    trial = AnalysisTrial((Variant.of("a", {}),), (ModelLoad(1, 8),))
    found = forecast_series(trial, [1, 2, 4, 8, 16, 32, 64, 128, 256], 5, breaks_at)
    assert (found.count, found.steps) == (count, steps)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_the_time_that_is_left_is_known(search: str, tmp_path: Path) -> None:
    for name in NAMES:
        keys = dict(SEARCHES[search])
        if search == "listed":
            sizes = {"max_batch_size": [1, 2, 4, 8], "instance_group": [{"kind": "KIND_CPU", "count": [1, 2]}]}
            keys["profile_models"] = {name: {"model_config_parameters": sizes, "parameters": {"concurrency": "1,8"}}}
        clock = replayed(tmp_path / name, name, **keys)
        found = {part: clock.error_at(part) for part in (0.25, 0.5, 0.75)}
        bounds = LOOSE.get(search, (0.25, 0.25, 0.25))
        assert all(abs(error) <= most for error, most in zip(found.values(), bounds, strict=True)), found


def test_a_search_that_ends_when_nothing_better_comes_has_its_trials_counted() -> None:
    chance = random.Random(1)

    def trials(least: int, most: int, most_idle: int) -> int:
        best, idle = -1.0, 0
        for number in range(1, most + 1):
            value = chance.random()
            best, idle = (value, 0) if value > best else (best, idle + 1)
            if number >= least and idle >= most_idle:
                return number
        return most

    for limits in ((5, 5, 10), (5, 9, 4), (10, 60, 10)):
        assert trials_left(0, 0, *limits) == pytest.approx(mean(trials(*limits) for _ in range(3000)), rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.3, "12 s"), (89, "89 s"), (94, "1 min 30 s"), (3599, "1 h 0 min"), (4510, "1 h 15 min")]
)
def test_times_are_as_exact_as_estimates(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
