"""The controller of self-tuning, against simulated queues whose batches cost a + b n."""

from __future__ import annotations

import random

import numpy as np
import pytest

from naiad.scheduling.tuning.controller import TuningController, TuningDecision, TuningReason
from naiad.scheduling.tuning.sample import TuningSample
from naiad.scheduling.tuning.setup import SetupLimits, TunedSetup
from naiad.telemetry.metrics.quantiles import counts_of
from support.simulated_queue import SimulatedModel, SimulatedQueue, best_offline, drive

QUANTILE = 0.99
ONE = TunedSetup(1, 0, 8, 0)
LIMITS = SetupLimits(ONE, 3, 2)
# With the limit of the latency in seconds. The times are long, so that a simulated minute has few events.
MODELS = {
    "sleeping": (SimulatedModel(0.030, 0.0), 0.200),
    "rows": (SimulatedModel(0.0, 0.020), 0.600),
    "one_device": (SimulatedModel(0.024, 0.004, devices=1), 0.400),
    "cores": (SimulatedModel(0.012, 0.006, uses_cores=True), 0.300),
    "mixed": (SimulatedModel(0.060, 0.002), 0.400),
}


def controller(limit_s: float, limits: SetupLimits = LIMITS) -> TuningController:
    return TuningController(limits, QUANTILE, round(limit_s * 1e9))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_finds_the_best_setup_and_follows_a_step_of_the_load(name: str) -> None:
    model, limit_s = MODELS[name]
    setups = LIMITS.setups(round(limit_s * 1e9))
    tuned, queue = controller(limit_s), SimulatedQueue(model, ONE, callers=6)
    for callers, seconds in ((6, 60), (24, 30)):
        queue.callers = callers
        drive(queue, tuned, seconds, limit_s)
        after = drive(queue, tuned, 15, limit_s)
        assert after.throughput >= 0.95 * best_offline(model, setups, limit_s, QUANTILE, callers)
        assert after.late_part <= 1 - QUANTILE


def test_threads_are_shared_among_instances() -> None:
    # All of the work can be divided among threads, so one instance with all of them is as good as several.
    model = SimulatedModel(0.004, 0.004, serial=0.9, uses_cores=True)
    configured = TunedSetup(1, 2, 8, 0)
    tuned = controller(0.2, SetupLimits(configured, 2, 2, moves_threads=True))
    queue = SimulatedQueue(model, configured, callers=6)
    seen: list[TuningDecision] = []
    drive(queue, tuned, 40, 0.2, seen.append)
    assert queue.setup.threads == 1
    assert all(decision.setup.instances * decision.setup.threads <= 2 for decision in seen)
    # A core for the server itself may be worth more than a second thread.
    assert any(decision.setup.same_instances(TunedSetup(1, 1, 0, 0)) for decision in seen)


def test_a_latency_limit_bounds_the_batches() -> None:
    # Batches of eight take 0.17 s: more throughput, and too late.
    model = SimulatedModel(0.010, 0.020, devices=1)
    tuned, queue = controller(0.15), SimulatedQueue(model, ONE, callers=3)
    drive(queue, tuned, 60, 0.15)
    assert drive(queue, tuned, 15, 0.15).late_part <= 1 - QUANTILE


def test_it_holds_what_it_found() -> None:
    tuned, queue = controller(0.2), SimulatedQueue(MODELS["sleeping"][0], ONE, callers=6)
    drive(queue, tuned, 60, 0.2)
    seen: list[TuningDecision] = []
    drive(queue, tuned, 120, 0.2, seen.append)
    assert not seen
    assert not tuned.is_searching
    assert tuned.decision.cause is TuningReason.BEST


def test_a_load_that_comes_and_goes_finds_its_setups_again() -> None:
    tuned, queue = controller(0.2), SimulatedQueue(MODELS["sleeping"][0], ONE, callers=4)
    drive(queue, tuned, 60, 0.2)
    queue.callers = 24
    drive(queue, tuned, 40, 0.2)
    found = tuned.setup
    queue.callers = 4
    drive(queue, tuned, 40, 0.2)
    queue.callers = 24
    seen: list[TuningDecision] = []
    drive(queue, tuned, 8, 0.2, seen.append)
    assert seen[0].cause is TuningReason.LOAD_CHANGED
    assert seen[0].setup == found


def test_pauses_of_the_traffic_are_no_other_load() -> None:
    tuned, queue = controller(0.2), SimulatedQueue(MODELS["sleeping"][0], ONE, callers=6)
    drive(queue, tuned, 60, 0.2)
    seen: list[TuningDecision] = []
    for _ in range(5):
        queue.callers = 0
        drive(queue, tuned, 3, 0.2, seen.append)
        queue.callers = 6
        drive(queue, tuned, 3, 0.2, seen.append)
    assert not seen


def test_a_fast_model_is_measured_though_nothing_is_open_whenever_it_is_looked_at() -> None:
    tuned, latencies = controller(0.2), counts_of(np.full(1000, 750.0))
    sample = TuningSample(0.25, 1000, 1000, 0.75, 0, 0, latencies, {1: (1000, 0.2)})
    assert any(tuned.add(sample) for _ in range(4))


def test_a_machine_with_other_work_does_not_keep_it_searching() -> None:
    tuned, queue = controller(0.2), SimulatedQueue(MODELS["sleeping"][0], ONE, callers=6)
    drive(queue, tuned, 60, 0.2)
    chance, searching = random.Random(1), 0
    for _ in range(36):
        queue.slowness = chance.choice((1.0, 1.0, 1.5))
        drive(queue, tuned, 5, 0.2)
        searching += tuned.is_searching
    assert searching <= 9
    queue.slowness = 1.0
    best = best_offline(queue.model, LIMITS.setups(200_000_000), 0.2, QUANTILE, 6)
    assert drive(queue, tuned, 10, 0.2).throughput >= 0.95 * best


def test_nothing_is_decided_without_traffic() -> None:
    tuned = controller(0.2)
    for _ in range(480):
        sample = TuningSample(0.25)
        assert not tuned.add(sample) or tuned.decide() is None
    assert tuned.setup == ONE


def test_setups_stay_within_the_configuration() -> None:
    found = SetupLimits(TunedSetup(2, 0, 12, 500), 4, 2).setups(20_000_000)
    assert found[0] == TunedSetup(2, 0, 12, 500)
    assert {setup.max_rows for setup in found} == {1, 2, 4, 8, 12}
    assert {setup.instances for setup in found} == {1, 2, 3, 4}
    assert max(setup.delay_us for setup in found) <= 20_000 / 4
    assert len(set(found)) == len(found)


def test_a_model_that_does_not_batch_keeps_its_batches() -> None:
    found = SetupLimits(TunedSetup(1, 0, 1, 0), 3, 2, batches=False).setups(20_000_000)
    assert [(setup.max_rows, setup.delay_us) for setup in found] == [(1, 0)] * 3


def test_instances_that_cannot_be_had_are_not_tried_again() -> None:
    tuned, queue = controller(0.2), SimulatedQueue(MODELS["rows"][0], ONE, callers=6)
    failures = 0
    for _ in range(480):
        if not tuned.add(queue.run(0.25, 0.2)):
            continue
        decision = tuned.decide()
        if decision is not None and decision.setup.instances > 1:
            failures += 1
            decision = tuned.failed(decision.setup, "no memory")
            assert tuned.decision.cause is TuningReason.FALLBACK
            assert "no memory" in tuned.decision.reason
            assert tuned.setup == ONE
        if decision is not None:
            queue.setup = decision.setup
    assert 1 <= failures <= 2
    assert queue.setup.instances == 1
