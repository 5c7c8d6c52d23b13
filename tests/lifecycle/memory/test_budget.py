"""The memory budget and load on demand inside one process: loads, evictions and requests at the same time."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path

import pytest

from naiad.errors import ModelLoadError, NaiadError, UnavailableError
from naiad.lifecycle.memory.budget import MemorySettings, entry_bytes
from naiad.lifecycle.memory.load_on_demand import LoadOnDemand, ModelNotLoadedError
from naiad.repository.catalog import Catalog
from support.config_texts import parameter
from support.event_loops import WAIT_S, run, until
from support.explicit_manager import CONFIG, House, answered, caller, house

GB = 1 << 30
"""So that what is measured of such small models counts for nothing."""
SLOW = parameter("execute_delay_ms", 50)


def sized(size: int, more: str = "") -> str:
    return CONFIG + parameter("memory.bytes", size * GB) + more


def ready(found: House) -> set[str]:
    return {model.name for model in found.engine.loaded_models()}


def chained(*members: str, beside: str = "") -> str:
    """An ensemble of models one behind the other, and of one beside them that gives EXTRA."""
    tensor = '{ name: "%s" data_type: TYPE_FP32 dims: [ 1 ] }'
    names = ["INPUT0", *(f"t{n}" for n in range(1, len(members))), "OUTPUT0"]
    taken = [*zip(members, names, names[1:], strict=False)] + ([(beside, "INPUT0", "EXTRA")] if beside else [])
    steps = [
        f'{{ model_name: "{member}" model_version: -1 input_map {{ key: "INPUT0" value: "{read}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{written}" }} }}'
        for member, read, written in taken
    ]
    outputs = [tensor % name for name in ("OUTPUT0", *(["EXTRA"] if beside else []))]
    return (
        f'platform: "ensemble" max_batch_size: 4 input [ {tensor % "INPUT0"} ] output [ {", ".join(outputs)} ] '
        f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"
    )


async def infer(found: House, name: str, value: float) -> None:
    """One request to a model that is loaded for it when it has to be; it is answered."""
    one = caller(value)
    told: asyncio.Future[NaiadError | None] = asyncio.get_running_loop().create_future()
    demand = found.engine.demand

    def handle(error: NaiadError | None = None) -> None:
        # At once when the model is there, as the front ends do: a turn later it may be gone again.
        try:
            if error is None:
                found.engine.find(name, "").submit(one)
        except ModelNotLoadedError as missing:
            assert demand is not None
            demand.wait(missing.name, 4, handle)
            return
        except NaiadError as other:
            error = other
        told.set_result(error)

    handle()
    error = await asyncio.wait_for(told, 4 * WAIT_S)
    assert error is None, error
    await answered(one)


def test_the_longest_unused_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB)) as found:
            for name in ("a", "b", "c"):
                found.write(name, sized(40))
            await found.manager.load_model("a")
            await asyncio.sleep(0.002)
            await found.manager.load_model("b")
            await asyncio.sleep(0.002)
            await infer(found, "a", 1.0)
            await found.manager.load_model("c")
            assert ready(found) == {"a", "c"}
            assert found.manager.memory.used_bytes() == 80 * GB

    run(scenario())


def test_pinned_models_and_figures(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB)) as found:
            found.write("pinned", sized(60, parameter("memory.pinned", "TRUE")))
            found.write("other", sized(50))
            found.write("huge", sized(101))
            await found.manager.load_model("pinned")
            with pytest.raises(
                UnavailableError,
                match=rf"it takes {50 * GB} bytes, {40 * GB} of the {100 * GB} .*\({60 * GB} of them pinned",
            ):
                await found.manager.load_model("other")
            with pytest.raises(ModelLoadError, match=rf"takes {101 * GB} bytes .*parameter 'memory.bytes'"):
                await found.manager.load_model("huge")
            assert ready(found) == {"pinned"}
            await found.manager.unload_model("pinned")
            await found.manager.load_model("other")
            assert ready(found) == {"other"}

    run(scenario())


def test_a_load_waits_for_the_memory_of_what_still_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB)) as found:
            found.write("slow", sized(60, parameter("execute_delay_ms", 400)))
            found.write("other", sized(60))
            await found.manager.load_model("slow")
            one = caller()
            found.engine.find("slow", "").submit(one)
            loading = asyncio.ensure_future(found.manager.load_model("other"))
            await until(lambda: ready(found) == set())
            assert not one.answers
            assert not loading.done()
            assert found.manager.memory.used_bytes() == 60 * GB
            await answered(one)
            await asyncio.wait_for(loading, WAIT_S)
            assert ready(found) == {"other"}

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_requests_loads_and_unloads_keeps_to_the_budget_and_loses_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sizes = {"a": 30, "b": 40, "c": 50, "d": 60}

    async def ask(found: House, name: str, count: int) -> None:
        for number in range(count):
            await infer(found, name, float(number))

    async def reload(found: House, name: str) -> None:
        for _ in range(3):
            found.write(name, sized(sizes[name], SLOW))
            # It may be refused when the others use everything; it must not hang.
            try:
                await found.manager.load_model(name)
            except UnavailableError:
                continue

    async def watch(found: House) -> None:
        while True:
            # What was loaded never goes beyond; a reload has both copies for a moment, which leave as they came.
            assert found.manager.memory.loaded_bytes() <= 100 * GB
            await asyncio.sleep(0.001)

    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB, demand_s=20)) as found:
            for name, size in sizes.items():
                found.write(name, sized(size, SLOW))
            found.manager.names.known = frozenset(sizes)
            watching = asyncio.ensure_future(watch(found))
            work = [ask(found, name, chance.randint(2, 6)) for name in sizes for _ in range(3)]
            work += [reload(found, name) for name in chance.sample(sorted(sizes), 2)]
            chance.shuffle(work)
            await asyncio.wait_for(asyncio.gather(*work), 2 * WAIT_S)
            assert not watching.done()
            watching.cancel()
            assert found.engine.demand is not None
            assert found.engine.demand.waiting == 0
            assert sum(entry_bytes(entry) for entry in found.manager.entries.values()) <= 100 * GB

    run(scenario())


@pytest.mark.slow
def test_no_member_of_an_ensemble_goes_while_that_is_loaded(tmp_path: Path) -> None:
    """Idle is told after a second here; the last member takes longer than that to load, and so does the whole."""

    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(idle_s=1)) as found:
            found.write("quick", CONFIG)
            found.write("late", CONFIG + parameter("creation_delay_sec", 1.6))
            found.write("inner", chained("quick"))
            found.write("outer", chained("inner", "late"))
            found.manager.memory.start()
            await found.manager.load_model("outer")
            assert ready(found) == {"quick", "late", "inner", "outer"}
            await until(lambda: not ready(found))

    run(scenario())


def test_a_member_that_is_seldom_needed_stays_while_its_ensemble_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(idle_s=5)) as found:
            for name in ("often", "seldom", "unused"):
                found.write(name, CONFIG)
            found.write("inner", chained("seldom"))
            found.write("outer", chained("often", beside="inner"))
            for name in ("outer", "unused"):
                await found.manager.load_model(name)
            for entry in found.manager.entries.values():
                entry.loaded_ms -= 10_000
            # OUTPUT0 is all that is asked for.
            await infer(found, "outer", 1)
            assert found.manager.entries["seldom"].loaded()[0].statistics.last_inference_ms == 0
            found.manager.memory.evict_idle()
            assert ready(found) == {"often", "seldom", "inner", "outer"}

    run(scenario())


@pytest.mark.slow
def test_no_model_goes_before_the_start_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(idle_s=1)) as found:
            found.write("quick", CONFIG)
            found.write("late", CONFIG + parameter("creation_delay_sec", 1.6))
            catalog = Catalog((found.repository,))
            await found.manager.load_all([catalog.find(name) for name in ("quick", "late")])
            assert ready(found) == {"quick", "late"}
            await until(lambda: not ready(found))

    run(scenario())


@pytest.mark.slow
def test_idle_models_go_unless_they_are_pinned_or_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(idle_s=1, demand_s=5)) as found:
            found.write("idle", CONFIG)
            found.write("pinned", CONFIG + parameter("memory.pinned", 1))
            found.write("runs", CONFIG + parameter("execute_delay_ms", 1800))
            for name in ("idle", "pinned", "runs"):
                await found.manager.load_model(name)
            found.manager.memory.start()
            one = caller()
            found.engine.find("runs", "").submit(one)
            await until(lambda: "idle" not in ready(found))
            assert not one.answers
            assert ready(found) == {"pinned", "runs"}
            await answered(one)

    run(scenario())


@pytest.mark.slow
def test_a_model_that_is_being_copied_is_loaded_once_it_lies_still(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, is_explicit=False, memory=MemorySettings(demand_s=30)) as found:
            found.write("m", CONFIG)
            found.manager.names.known = frozenset({"m"})
            begun, ended = threading.Event(), threading.Event()

            def copy() -> None:
                for _ in range(20):
                    with (found.repository / "m" / "1" / "weights").open("ab") as file:
                        file.write(b"more")
                    begun.set()
                    time.sleep(0.1)
                found.write("m", CONFIG + parameter("tag", "whole"))
                ended.set()

            thread = threading.Thread(target=copy)
            thread.start()
            await until(begun.is_set)
            await infer(found, "m", 1.0)
            assert ended.is_set()
            assert found.engine.find("m", None).spec.parameters["tag"] == "whole"
            thread.join()

    run(scenario())


@pytest.mark.slow
def test_a_load_that_waits_for_files_to_lie_still_is_given_up_when_its_model_is_unloaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(demand_s=30)) as found:
            found.write("m", CONFIG)
            found.manager.names.known = frozenset({"m"})
            file, begun, ended = found.repository / "m" / "1" / "weights", threading.Event(), threading.Event()

            def copy() -> None:
                while not ended.wait(0.05):
                    file.write_bytes(b"more")
                    begun.set()

            thread = threading.Thread(target=copy)
            thread.start()
            try:
                await until(begun.is_set)
                told: asyncio.Future[NaiadError | None] = asyncio.get_running_loop().create_future()
                assert found.engine.demand is not None
                found.engine.demand.wait("m", 4, told.set_result)
                await until(lambda: found.manager.has_operation("m"))
                await asyncio.wait_for(found.manager.unload_model("m"), WAIT_S)
                assert "was given up: the model is to be unloaded" in str(await asyncio.wait_for(told, WAIT_S))
            finally:
                ended.set()
                thread.join()

    run(scenario())


class Loader:
    """Loads when it is told to."""

    def __init__(self) -> None:
        self.loads: list[object] = []
        self.is_there = False

    def is_loadable(self, name: str) -> bool:
        return not self.is_there

    def begin_demanded(self, name: str, done: object) -> None:
        self.loads.append(done)


def test_waiting_is_bounded_in_number_and_in_bytes_and_leaves_nothing() -> None:
    async def scenario() -> None:
        loader = Loader()
        demand = LoadOnDemand(loader, 0.05)
        told: list[NaiadError | None] = []
        first = demand.wait("m", 1 << 30, told.append)
        with pytest.raises(UnavailableError, match="1 requests with 1073741824 bytes wait"):
            demand.wait("m", 1, told.append)
        first.leave()
        first.leave()
        for _ in range(1024):
            demand.wait("m", 1, told.append)
        with pytest.raises(UnavailableError, match="1024 requests"):
            demand.wait("other", 1, told.append)
        assert len(loader.loads) == 1
        await until(lambda: len(told) == 1024)
        assert demand.waiting == 0
        assert not demand.holds("m")
        assert all("was not loaded within 0.05 s" in str(error) for error in told)

    run(scenario())


@pytest.mark.slow
def test_a_load_that_waits_for_room_is_given_up_when_its_model_is_unloaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB)) as found:
            found.write("slow", sized(60, parameter("execute_delay_ms", 1500)))
            for name in ("first", "second"):
                found.write(name, sized(60))
            await found.manager.load_model("slow")
            one = caller()
            found.engine.find("slow", "").submit(one)
            # One waits for the memory, and one in line for its turn.
            loads = []
            for name in ("first", "second"):
                loads.append(asyncio.ensure_future(found.manager.load_model(name)))
                await until(lambda name=name: name in found.manager.memory.asking)
            for name, loading in zip(("second", "first"), reversed(loads), strict=True):
                await asyncio.wait_for(found.manager.unload_model(name), WAIT_S)
                with pytest.raises(ModelLoadError, match=f"model '{name}' was given up: the model is to be unloaded"):
                    await loading
            assert not one.answers
            await answered(one)

    run(scenario())


def test_a_model_that_goes_while_it_waits_to_change_in_place_is_loaded(tmp_path: Path) -> None:
    """Another load takes its memory while it is in line; what it answers is true."""

    async def load(found: House, name: str) -> None:
        await found.manager.load_model(name)
        assert name in ready(found)

    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB)) as found:
            groups = "instance_group { count: %d kind: KIND_CPU }"
            found.write("grows", sized(60, groups % 1))
            found.write("large", sized(100))
            await found.manager.load_model("grows")
            for count in range(2, 12):
                found.write("grows", sized(60, groups % count))
                await asyncio.wait_for(asyncio.gather(load(found, "grows"), load(found, "large")), 2 * WAIT_S)
                await load(found, "grows")
                assert found.engine.find("grows", None).spec.instance_count == count

    run(scenario())
