"""Self-tuning of models that serve, and changes of their configuration in place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from naiad.errors import UnavailableError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.memory.budget import MemorySettings, TooLargeError
from support.config_texts import parameter
from support.event_loops import until
from support.explicit_manager import CONFIG, House, answered, caller, play

BATCHED = (
    CONFIG + "dynamic_batching { }" + parameter("execute_delay_ms", 5) + "instance_group { kind: KIND_CPU count: 1 }"
)
TUNED = BATCHED + parameter("slo", "p99=500ms,instances=2")


def to(count: int) -> Any:
    """A change of the number of instances."""

    def change(config: Any, completed: Any) -> None:
        assert completed.instance_group[0].count
        config.ClearField("instance_group")
        config.instance_group.add(count=count, kind=completed.instance_group[0].kind)

    return change


async def loaded(found: House, config: str) -> LoadedModel:
    found.write("m", config)
    await found.manager.load_model("m")
    model = found.engine.find("m", None)
    assert isinstance(model, LoadedModel)
    return model


def test_a_model_changes_its_instances_without_a_load_request(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        model = await loaded(found, BATCHED)
        await found.manager.change_config("m", to(3))
        assert found.engine.find("m", None) is model
        assert sum(model.instance_states.values()) == 3
        # Nothing has changed on disk: a load of the same files changes nothing either.
        await found.manager.load_model("m")
        assert sum(model.instance_states.values()) == 3
        one = caller()
        model.submit(one)
        await answered(one)

    play(tmp_path, scenario, is_explicit=True)


def test_a_change_is_refused_where_the_files_are_not_those_that_serve(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        model = await loaded(found, BATCHED)
        found.write("m", BATCHED + "version_policy { all { } }")
        with pytest.raises(UnavailableError, match="have changed since it was loaded"):
            await found.manager.change_config("m", to(2))
        with pytest.raises(UnavailableError, match="cannot be changed while it serves"):
            await found.manager.change_config("unknown", to(2))
        assert found.engine.find("m", None) is model
        assert sum(model.instance_states.values()) == 1

    play(tmp_path, scenario)


def test_a_change_evicts_nothing(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        model = await loaded(found, BATCHED)
        memory = found.manager.memory
        # Room for what is there, and for nothing more.
        memory.budget_bytes = memory.used_bytes()
        model.statistics.memory_bytes = memory.used_bytes() or 1
        with pytest.raises(TooLargeError, match="--model-memory-budget has"):
            await found.manager.change_config("m", to(2))
        assert sum(model.instance_states.values()) == 1

    play(tmp_path, scenario, memory=MemorySettings(1 << 40))


def test_batches_of_a_model_that_serves_get_another_bound(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        model = await loaded(found, BATCHED)
        for most in (2, 4):
            model.limit_batches(most, 0)
            callers = [caller() for _ in range(8)]
            for one in callers:
                model.submit(one)
            for one in callers:
                await answered(one)
            assert max(model.statistics.batches) == most

    play(tmp_path, scenario)


def test_only_models_with_an_objective_are_followed(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        model = await loaded(found, BATCHED)
        assert not found.engine.tuner.models
        assert model.statistics.latencies is None
        model = await loaded(found, TUNED)
        (tuned,) = found.engine.tuner.models.values()
        assert tuned.model is model
        model = await loaded(found, BATCHED + parameter("slo", "off"))
        assert not found.engine.tuner.models
        sequences = 'sequence_batching { } parameters { key: "slo" value { string_value: "p99=1s" } }'
        await loaded(found, CONFIG + sequences)
        assert not found.engine.tuner.models

    play(tmp_path, scenario)


def test_an_unloaded_model_is_forgotten(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        await loaded(found, TUNED)
        assert found.engine.tuner.models
        await found.manager.unload_model("m")
        assert not found.engine.tuner.models

    play(tmp_path, scenario)


@pytest.mark.slow
def test_a_model_under_load_is_tuned_and_loses_no_request(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        model = await loaded(found, TUNED)
        (tuned,) = found.engine.tuner.models.values()
        over = asyncio.Event()

        async def call() -> int:
            count = 0
            while not over.is_set():
                one = caller()
                model.submit(one)
                await answered(one)
                count += 1
            return count

        callers = [asyncio.create_task(call()) for _ in range(6)]
        # One instance gives too little: another one is tried at some time.
        await until(lambda: tuned.applied.instances == sum(model.instance_states.values()) == 2)
        await until(lambda: sum(tuned.changes.values()) >= 3)
        over.set()
        counts = await asyncio.gather(*callers)
        assert model.statistics.success.count == sum(counts)
        assert all(size <= 4 for size in model.statistics.batches)
        written = found.engine.written_config("m", None).tuned
        assert written is not None
        assert written["objective"] == "p99=500ms,instances=2"
        assert written["setup"]["instances"] == tuned.applied.instances
        assert written["reason"]

    play(tmp_path, scenario)


@pytest.mark.slow
def test_a_load_with_other_instances_begins_anew(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        await loaded(found, TUNED)
        await loaded(found, TUNED.replace("count: 1", "count: 2"))
        (tuned,) = found.engine.tuner.models.values()
        key = next(iter(found.engine.tuner.models))
        await until(lambda: found.engine.tuner.models[key].limits.configured.instances == 2)
        assert found.engine.tuner.models[key] is not tuned

    play(tmp_path, scenario)
