"""What callers can make the server keep by loading and unloading models is bounded."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from naiad.errors import ModelLoadError, NaiadError, UnavailableError
from naiad.lifecycle.manager import MAX_UNLOADING
from naiad.lifecycle.memory.budget import MemorySettings
from naiad.lifecycle.naming import RepositoryNames
from naiad.lifecycle.state import unknown_names as strays
from naiad.lifecycle.state import upload_quota as brought
from naiad.lifecycle.state.model_table import MAX_GONE
from naiad.lifecycle.state.unknown_names import MAX_UNKNOWN
from naiad.repository.catalog import Catalog
from naiad.repository.local.overrides import NO_OVERRIDES, Overrides
from support.config_texts import parameter
from support.event_loops import run, until
from support.explicit_manager import AS_JSON, CONFIG, House, answered, caller, play
from support.kept_objects import kept

GB = 1 << 30


@pytest.mark.slow
def test_what_is_left_of_names_that_callers_choose_is_bounded(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        wrong = Overrides((AS_JSON % 1).replace("identity", "nonsense"), {"file:1/x": b""})
        for number in range(MAX_UNKNOWN + 20):
            with pytest.raises(ModelLoadError):
                await found.manager.load_model(f"m{number}", wrong)
        assert len(found.manager.entries) == MAX_UNKNOWN
        assert f"m{MAX_UNKNOWN + 19}" in found.manager.entries

    play(tmp_path, scenario)


@pytest.mark.slow
def test_copies_that_do_not_end_are_bounded(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", CONFIG + parameter("execute_delay_ms", 3000))
        waiting = []
        for turn in range(MAX_UNLOADING + 1):
            await found.manager.load_model("m")
            waiting.append(caller())
            found.engine.find("m", None).submit(waiting[-1])
            found.write("m", CONFIG + parameter("execute_delay_ms", 3001 + turn))
        with pytest.raises(UnavailableError, match="earlier versions of model 'm' still finish"):
            await found.manager.load_model("m")
        for one in waiting:
            await answered(one)
        await until(lambda: found.manager.entries["m"].unloading == 0)
        await found.manager.load_model("m")

    play(tmp_path, scenario)


def test_versions_that_were_unloaded_are_bounded(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        for version in range(1, MAX_GONE + 11):
            await found.manager.load_model("m", Overrides(AS_JSON % 1, {f"file:{version}/x": b""}))
            await until(lambda: found.manager.entries["m"].unloading == 0)
        entry = found.manager.entries["m"]
        await found.manager.load_model("m", Overrides(AS_JSON % 1, {"file:999/x": b""}))
        await until(lambda: entry.unloading == 0)
        gone = set(entry.versions) - {999}
        assert gone == set(range(10, MAX_GONE + 11))
        assert found.engine.find("m", None).version == 999
        assert found.engine.is_ready()

    play(tmp_path, scenario)


@pytest.mark.slow
def test_what_waiting_loads_hold_together_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brought, "MAX_CONTENT", 10_000)

    async def scenario(found: House) -> None:
        config = (AS_JSON % 1)[:-1] + ', "parameters": {"creation_delay_sec": {"string_value": "1"}}}'
        large, small = Overrides(config, {"file:1/x": b"x" * 20_000}), Overrides(AS_JSON % 1, {"file:1/x": b""})
        # One alone may be larger.
        first = asyncio.ensure_future(found.manager.load_model("m", large))
        await until(lambda: "LOADING" in str(found.index()))
        with pytest.raises(UnavailableError, match=r"hold 20\d{3} uploaded bytes: load model 'n' again when"):
            await found.manager.load_model("n", small)
        found.write("plain")
        await found.manager.load_model("plain")
        await first
        await found.manager.load_model("n", small)

    play(tmp_path, scenario)


def test_any_number_of_listings_takes_one_thread(tmp_path: Path) -> None:
    reading, going_on = threading.Event(), threading.Event()

    class Slow(Catalog):
        """The real one, on a slow disk."""

        def names(self) -> frozenset[str]:
            looks.append(threading.current_thread())
            reading.set()
            going_on.wait(10)
            return super().names()

    looks: list[threading.Thread] = []

    async def test() -> None:
        (tmp_path / "early").mkdir()
        names, told = RepositoryNames(Slow((tmp_path,))), list[NaiadError | None]()
        names.refresh(told.append)
        await until(reading.is_set)
        for _ in range(500):
            names.refresh(told.append)
        assert told == []
        (tmp_path / "late").mkdir()
        going_on.set()
        await until(lambda: len(told) == 501)
        assert len(looks) == 2
        assert told == [None] * 501
        assert names.known == {"early", "late"}

    run(test())


@pytest.mark.slow
def test_what_is_remembered_of_ensembles_that_callers_make_up_is_bounded(tmp_path: Path) -> None:
    config = """{"platform": "ensemble", "max_batch_size": 1,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
        "ensemble_scheduling": {"step": [{"model_name": "nobody", "model_version": -1,
            "input_map": {"INPUT0": "INPUT0"}, "output_map": {"OUTPUT0": "OUTPUT0"}}]}}"""

    async def scenario(found: House) -> None:
        for number in range(MAX_UNKNOWN + 20):
            with pytest.raises(NaiadError, match="nobody"):
                await found.manager.load_model(f"m{number}", Overrides(config, {"file:1/x": b""}))
        assert len(found.manager.entries) == MAX_UNKNOWN
        names = {f"m{number}" for number in range(MAX_UNKNOWN + 20)}
        known = {one for one in kept(found.manager) if isinstance(one, str) and one in names}
        assert len(known) <= MAX_UNKNOWN + 1

    play(tmp_path, scenario)


@pytest.mark.slow
def test_a_name_is_not_forgotten_while_its_load_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "MAX_UNKNOWN", 4)
    config = (AS_JSON % 1)[:-1] + f', "parameters": {{"memory.bytes": {{"string_value": "{60 * GB}"}}}}}}'
    wrong = Overrides((AS_JSON % 1).replace("identity", "nonsense"), {"file:1/x": b""})

    async def scenario(found: House) -> None:
        found.write("slow", CONFIG + parameter("memory.bytes", 60 * GB) + parameter("execute_delay_ms", 700))
        found.write("first", CONFIG + parameter("memory.bytes", 60 * GB))
        await found.manager.load_model("slow")
        with pytest.raises(NaiadError):
            await found.manager.load_model("made up", wrong)
        one = caller()
        found.engine.find("slow", None).submit(one)
        # The first waits for the memory of the slow one, and all others in line behind it.
        loads = []
        right = Overrides(config, {"file:1/x": b""})
        for name, brought_with in [("first", NO_OVERRIDES), *((f"m{n}", wrong) for n in range(8)), ("made up", right)]:
            loads.append(asyncio.ensure_future(found.manager.load_model(name, brought_with)))
            await until(lambda name=name: name in found.manager.memory.asking)
        found_errors = await asyncio.wait_for(asyncio.gather(*loads, return_exceptions=True), 10)
        assert [error is None for error in found_errors] == [True, *([False] * 8), True]
        await answered(one)
        two = caller()
        found.engine.find("made up", None).submit(two)
        await answered(two)

    play(tmp_path, scenario, memory=MemorySettings(budget_bytes=100 * GB))


def test_models_that_left_the_repository_are_forgotten_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strays, "MAX_UNKNOWN", 4)

    async def refresh(found: House) -> None:
        listed = asyncio.Event()
        found.manager.begin_listing(lambda error: listed.set())
        await listed.wait()

    async def scenario(found: House) -> None:
        for number in range(12):
            found.write(f"m{number}")
            await refresh(found)
            await found.manager.load_model(f"m{number}")
            await found.manager.unload_model(f"m{number}")
            await until(lambda: not found.manager._draining.models)
            shutil.rmtree(found.repository / f"m{number}")
            await refresh(found)
        # The last one was in the repository when it was unloaded.
        assert len(found.manager.entries) <= 5

    play(tmp_path, scenario)
