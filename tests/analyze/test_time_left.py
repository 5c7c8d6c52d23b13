"""The time that an analysis says is left, in replays of whole runs on recorded models."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml

from naiad.analyze.measurement import Measurement
from naiad.analyze.progress import AnalyzeProgress
from naiad.analyze.run import AnalyzeRun
from naiad.analyze.search.search import MeasurementRequest
from naiad.analyze.search.work import trials_left
from naiad.analyze.settings.read import parse_analyze
from naiad.cli.analyze_progress import duration_text
from support.recorded_measurements import NAMES, ReplayedSource

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

LOOSE = {"quick": (0.35, 0.25, 0.25), "optuna": (0.45, 0.45, 0.25), "halving with a budget": (0.45, 0.35, 0.35)}
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


@pytest.mark.parametrize("search", SEARCHES)
def test_the_time_that_is_left_is_known(search: str, tmp_path: Path) -> None:
    for name in NAMES:
        keys = dict(SEARCHES[search])
        if search == "listed":
            sizes = {"max_batch_size": [1, 2, 4, 8], "instance_group": [{"kind": "KIND_CPU", "count": [1, 2]}]}
            keys["profile_models"] = {name: {"model_config_parameters": sizes, "parameters": {"concurrency": "1,8"}}}
        clock = replayed(tmp_path / name, name, **keys)
        found = {part: clock.error_at(part) for part in (0.25, 0.5, 0.75)}
        bounds = LOOSE.get(search, (0.26, 0.25, 0.25))
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
