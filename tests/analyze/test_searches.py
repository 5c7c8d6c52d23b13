"""The searches against models all of whose configurations were measured (``scripts/record_configurations.py``)."""

from __future__ import annotations

import os
from statistics import mean, median

import psutil
import pytest

from naiad.analyze.rank.certainty import CERTAIN, Noise, probability
from naiad.analyze.rank.score import Judge
from naiad.analyze.result import ModelProfile
from naiad.analyze.search.brute import brute
from naiad.analyze.search.halving import halving
from naiad.analyze.search.optuna import TrialLimits, optuna_search
from naiad.analyze.search.quick import quick
from naiad.analyze.search.search import Search
from naiad.analyze.settings.goal import Constraint, Goal
from support.recorded_measurements import NAMES, RecordedSource

STARTS = (0, 1, 2)


def searched(source: RecordedSource, search: Search, profile: ModelProfile) -> ModelProfile:
    """The profile behind a search."""
    request = next(search, None)
    while request is not None:
        found = source.measure(request.trial, request.scale)
        found.window_ms *= request.scale
        profile.repeats.setdefault(request.trial, []).append(found)
        try:
            request = search.send(found)
        except StopIteration:
            request = None
    return profile


def started(source: RecordedSource, goal: Goal | None = None) -> ModelProfile:
    """A profile with the default alone."""
    profile = ModelProfile(source.space.subjects, Judge((goal or Goal(),)), source.space.size)
    profile.default = source.measure(source.space.default_trial(), 4)
    profile.judge.base = profile.default
    profile.repeats[profile.default.trial] = [profile.default]
    return profile


def choice(source: RecordedSource, profile: ModelProfile) -> float:
    """The throughput of what was chosen, as a part of the best one's."""
    return source.truth(profile.ranked()[0].trial) / source.best()


def test_there_are_six_models_and_more() -> None:
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_a_fifth_of_the_measurements_finds_the_best(name: str) -> None:
    found = []
    for start in STARTS:
        source = RecordedSource(name, start)
        profile = started(source)
        searched(source, halving(source.space, profile.judge.utility), profile)
        assert source.count <= source.space.size / 5
        found.append(choice(source, profile))
    assert median(found) >= 0.95, found


def test_longer_windows_of_a_small_search_lower_the_noise() -> None:
    found = []
    for name in NAMES:
        for start in range(20):
            source = RecordedSource(name, start, noise=0.12)
            profile = started(source)
            searched(source, halving(source.space, profile.judge.utility), profile)
            assert source.count <= source.space.size / 5
            found.append(choice(source, profile))
    # 77% of the searches; with the shortest windows alone it was 65%.
    assert mean(part >= 0.95 for part in found) >= 0.75, found


def test_brute_force_measures_everything() -> None:
    source = RecordedSource("sleeping")
    profile = started(source)
    searched(source, brute(source.space, (), profile.judge.is_within, profile.judge.utility, 5), profile)
    assert source.count == source.space.size + 1
    assert choice(source, profile) >= 0.95


@pytest.mark.parametrize("name", ["sleeping", "large"])
def test_a_climb_takes_fewer_measurements(name: str) -> None:
    source = RecordedSource(name)
    profile = started(source)
    searched(source, quick(source.space, profile.judge.utility), profile)
    assert source.count < source.space.size / 2
    assert choice(source, profile) >= 0.8


def test_optuna_stops_in_its_limits() -> None:
    source = RecordedSource("sleeping")
    profile = started(source)
    limits = TrialLimits(least=5, most=15, most_idle=5)
    searched(source, optuna_search(source.space, profile.judge.utility, limits, 1), profile)
    assert 5 <= source.count <= 16


def test_a_limit_of_the_latency_is_looked_after() -> None:
    source = RecordedSource("slow")
    limit = Constraint("perf_latency_p99", most=60.0)
    profile = started(source, Goal(constraints=(limit,)))
    searched(source, halving(source.space, profile.judge.utility), profile)
    assert profile.judge.is_within(profile.ranked()[0])


def test_most_of_what_is_certain_is_so_in_a_rerun() -> None:
    kept = total = 0
    for name in NAMES:
        source = RecordedSource(name)
        trials = [source.space.trial(point) for point in source.space.points()]
        first = [source.round(trial, source.keys[trial.key], 0) for trial in trials]
        again = [source.round(trial, source.keys[trial.key], 1) for trial in trials]
        noise = Noise.of(zip(first, again, strict=True))
        for one in range(len(trials)):
            for other in range(len(trials)):
                if probability(first[one], first[other], noise) >= CERTAIN:
                    total += 1
                    kept += again[one].throughput > again[other].throughput
    assert total > 1000
    assert kept >= 0.9 * total


def test_a_search_needs_little_memory() -> None:
    source = RecordedSource("large")
    before = psutil.Process(os.getpid()).memory_info().rss
    profile = started(source)
    searched(source, halving(source.space, profile.judge.utility), profile)
    assert psutil.Process(os.getpid()).memory_info().rss - before < 50e6
