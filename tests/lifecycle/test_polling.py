"""Models that follow their repository: what looks find is loaded and unloaded, and what serves goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from naiad.errors import NaiadError, UnavailableError
from naiad.lifecycle import manager as managing
from naiad.lifecycle.manager import NO_LIMITS
from naiad.lifecycle.memory.budget import MemorySettings
from naiad.lifecycle.polling import Polling
from naiad.lifecycle.state import unknown_names as strays
from naiad.repository.catalog import Catalog
from naiad.repository.changes.watch import Findings, Watch
from naiad.repository.local.overrides import NO_OVERRIDES
from naiad.testing import write_model
from support.config_texts import parameter
from support.event_loops import run, until
from support.explicit_manager import CONFIG, GONE, LATE, READY, SLOW, House, answered, caller
from support.http_application import write_look_up

ALL = CONFIG + "version_policy { all { } }"
# Loads until a file lies beside its configuration.
WAITS = """
import os, time
class TritonPythonModel:
    def initialize(self, args):
        while not os.path.exists(os.path.join(args["model_repository"], "go")):
            time.sleep(0.01)
    def execute(self, requests):
        return []
"""


class PolledHouse(House):
    """A manager that follows its repository whenever a test looks."""

    def __init__(
        self,
        repository: Path,
        threads: int = 2,
        watch: type[Watch] = Watch,
        memory: MemorySettings = NO_LIMITS,
    ) -> None:
        super().__init__(repository, threads, is_explicit=False, memory=memory)
        self.watch = watch(Catalog((repository,)))
        self.polling = Polling(self.manager, self.watch, 0.01)

    async def begin(self) -> None:
        """Load what is there, as a server does at its start."""
        listing = Catalog((self.repository,)).listing()
        self.watch.begin(listing.models, listing.unavailable)
        self.manager.names.known = frozenset(listing.models)
        await self.manager.load_all(listing.models.values())
        await self.polling.look()

    async def settle(self) -> None:
        """Look until nothing changes any more and all of it is loaded."""
        await self.polling.look()
        while await self.polling.look() or self.polling.is_busy:
            await self.polling.wait()


@asynccontextmanager
async def polled(
    tmp_path: Path, watch: type[Watch] = Watch, memory: MemorySettings = NO_LIMITS
) -> AsyncIterator[PolledHouse]:
    found = PolledHouse(tmp_path / "models", watch=watch, memory=memory)
    try:
        yield found
    finally:
        await found.polling.stop()
        assert await found.manager.unload_all(20)


def test_models_come_change_and_go(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("a")
            await house.begin()
            assert house.index() == {"a:1": READY}
            first = house.engine.find("a", None)
            house.write("b")
            await house.settle()
            assert house.index() == {"a:1": READY, "b:1": READY}
            assert house.engine.find("a", None) is first
            house.write("a", CONFIG + parameter("tag", "new"))
            await house.settle()
            assert house.engine.find("a", None).spec.parameters["tag"] == "new"
            shutil.rmtree(house.repository / "a")
            await house.settle()
            await house.done({"a:1": GONE, "b:1": READY})
            assert house.engine.is_ready()
            house.write("a")
            await house.settle()
            assert house.index() == {"a:1": READY, "b:1": READY}

    run(test())


def test_a_broken_change_leaves_what_serves_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m")
            await house.begin()
            before = house.engine.find("m", None)
            house.write("m", CONFIG + "{")
            await house.settle()
            assert house.engine.find("m", None) is before
            state, reason = house.index()["m:1"]
            assert (state, reason[:45]) == ("READY", "serves as before, it could not be loaded agai")
            assert house.engine.is_ready()
            caplog.clear()
            await house.settle()
            assert caplog.text == ""
            house.write("m")
            await house.settle()
            assert house.engine.find("m", None) is before
            assert house.index() == {"m:1": READY}

    with caplog.at_level(logging.INFO):
        run(test())


def test_a_model_that_was_broken_from_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m", CONFIG + "{")
            (house.repository / "link").symlink_to(tmp_path / "nowhere")
            await house.begin()
            await house.settle()
            assert not house.engine.is_ready()
            house.write("m")
            (house.repository / "link").unlink()
            await house.settle()
            assert house.index() == {"m:1": READY}
            assert house.engine.is_ready()

    run(test())


def test_only_the_versions_that_changed_are_loaded(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m", ALL, (1, 2))
            await house.begin()
            first, second = (house.engine.find("m", version) for version in "12")
            (house.repository / "m" / "3").mkdir()
            await house.settle()
            assert house.engine.find("m", "1") is first
            assert house.engine.find("m", "2") is second
            assert house.engine.find("m", None).version == 3
            (house.repository / "m" / "2" / "data").touch()
            await house.settle()
            assert house.engine.find("m", "1") is first
            assert house.engine.find("m", "2") is not second
            shutil.rmtree(house.repository / "m" / "3")
            await house.settle()
            await house.done({"m:1": READY, "m:2": READY, "m:3": GONE})
            assert house.engine.find("m", "1") is first
            assert house.engine.find("m", None).version == 2

    run(test())


def test_the_latest_version_follows_the_folders(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m")
            await house.begin()
            (house.repository / "m" / "2").mkdir()
            await house.settle()
            await house.done({"m:1": GONE, "m:2": READY})
            shutil.rmtree(house.repository / "m" / "2")
            await house.settle()
            await house.done({"m:1": READY, "m:2": GONE})
            shutil.rmtree(house.repository / "m" / "1")
            await house.settle()
            assert house.index()["m:1"][0] == "READY"
            assert "at least one version must be available" in house.index()["m:1"][1]

    run(test())


def test_a_version_that_failed_is_loaded_when_it_is_repaired(tmp_path: Path) -> None:
    """Beside one that serves, which goes on."""

    async def test() -> None:
        async with polled(tmp_path) as house:
            write_look_up(house.repository, "version_policy { all { } }")
            folder = house.repository / "look_up"
            (folder / "2").mkdir()
            (folder / "2" / "model.onnx").write_bytes(b"no model")
            await house.begin()
            assert house.index()["look_up:2"][0] == "UNAVAILABLE"
            first = house.engine.find("look_up", "1")
            (folder / "2" / "model.onnx").write_bytes(b"no model either")
            await house.settle()
            assert house.engine.find("look_up", None) is first
            assert house.index()["look_up:2"][0] == "UNAVAILABLE"
            shutil.copy(folder / "1" / "model.onnx", folder / "2")
            await house.settle()
            assert house.index() == {"look_up:1": READY, "look_up:2": READY}
            assert house.engine.find("look_up", "1") is first

    run(test())


@pytest.mark.slow
def test_requests_are_answered_while_models_follow(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m", SLOW)
            await house.begin()
            callers = [caller(i) for i in range(3)]
            for one in callers:
                house.engine.find("m", None).submit(one)
            house.write("m", CONFIG)
            await house.settle()
            shutil.rmtree(house.repository / "m")
            await house.settle()
            for one in callers:
                await answered(one)
            await house.done({"m:1": GONE})

    run(test())


def test_a_model_that_is_removed_while_it_loads(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            await house.begin()
            house.write("m", LATE)
            await house.polling.look()
            await house.polling.look()
            assert house.polling.is_busy
            shutil.rmtree(house.repository / "m")
            await house.settle()
            await until(lambda: house.index() == {"m:1": GONE})
            assert house.engine.is_ready()

    run(test())


def test_one_model_that_loads_for_long_does_not_hold_others_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            await house.begin()
            house.write("late", CONFIG.replace('"identity"', '"python"'))
            (house.repository / "late" / "1" / "model.py").write_text(WAITS)
            await house.polling.look()
            await house.polling.look()
            await until(lambda: house.index().get("late:1", GONE)[0] == "LOADING")
            house.write("m")
            await house.polling.look()
            await house.polling.look()
            await until(lambda: house.index().get("m:1") == READY)
            assert house.index()["late:1"][0] == "LOADING"
            (house.repository / "late" / "go").touch()
            await until(lambda: house.index()["late:1"] == READY)

    run(test())


@pytest.mark.slow
def test_a_change_that_finds_too_many_earlier_copies_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managing, "MAX_UNLOADING", 1)

    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m", SLOW)
            await house.begin()
            one = caller()
            house.engine.find("m", None).submit(one)
            house.write("m", SLOW + parameter("tag", "second"))
            await house.settle()
            house.write("m", SLOW + parameter("tag", "third"))
            await house.polling.look()
            await house.polling.look()
            await house.polling.wait()
            assert house.engine.find("m", None).spec.parameters["tag"] == "second"
            await answered(one)
            await until(lambda: house.manager.entries["m"].unloading == 0)
            await house.settle()
            assert house.engine.find("m", None).spec.parameters["tag"] == "third"

    run(test())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m")
            await house.begin()
            (house.repository / "m").chmod(0)
            await house.settle()
            assert "Permission denied" in house.index()["m:1"][1]
            (house.repository / "m").chmod(0o755)
            await house.settle()
            assert house.index() == {"m:1": READY}

    run(test())


def test_a_repository_that_goes_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m")
            await house.begin()
            before = house.engine.find("m", None)
            house.repository.rename(tmp_path / "away")
            for _ in range(3):
                await house.polling.look()
            assert house.index() == {"m:1": READY}
            (tmp_path / "away").rename(house.repository)
            await house.settle()
            assert house.engine.find("m", None) is before

    with caplog.at_level(logging.INFO):
        run(test())
    assert caplog.text.count("cannot be read, its models stay as they are") == 1
    assert caplog.text.count("can be read again") == 1


class Failing(Watch):
    """A watch that fails at its first look."""

    looks = 0

    def look(self, busy: Collection[str], is_settled: Callable[[str], bool]) -> Findings:
        self.looks += 1
        if self.looks == 1:
            raise RuntimeError("a fault of the watch")
        return super().look(busy, is_settled)


def test_looking_goes_on_after_a_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with polled(tmp_path, Failing) as house:
            house.polling.start()
            house.write("m")
            await until(lambda: house.index() == {"m:1": READY})
            await house.polling.stop()
            await house.polling.stop()

    run(test())
    assert "a fault of the watch" in caplog.text


def test_looks_leave_no_threads(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.polling.start()
            house.write("m")
            await until(lambda: house.index() == {"m:1": READY})
        await until(lambda: not [t for t in threading.enumerate() if t.name == "naiad-load"])

    run(test())


def test_the_api_does_not_load_or_unload(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            text = "^explicit model load / unload is not allowed if polling is enabled"
            with pytest.raises(UnavailableError, match=text):
                await house.manager.load_model("m", NO_OVERRIDES)
            with pytest.raises(UnavailableError, match=text):
                await house.manager.unload_model("m")

    run(test())


def test_many_names_that_come_and_go_are_not_remembered_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strays, "MAX_UNKNOWN", 3)

    async def test() -> None:
        async with polled(tmp_path) as house:
            await house.begin()
            for number in range(6):
                write_model(house.repository, f"m{number}", CONFIG)
                await house.settle()
                shutil.rmtree(house.repository / f"m{number}")
                await house.settle()
                await until(lambda: all(not e.unloading for e in house.manager.entries.values()))
            await until(lambda: len(house.manager.entries) <= 3)

    run(test())


def test_a_storm_of_changes_ends_with_what_lies_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m", CONFIG + parameter("tag", 0))
            await house.begin()
            house.polling.start()
            for number in range(1, 40):
                house.write("m", CONFIG + (parameter("tag", number) if number % 3 else "{"))
                one = caller()
                house.engine.find("m", None).submit(one)
                await answered(one)
                await asyncio.sleep(0.005)
            house.write("m", CONFIG + parameter("tag", 99))
            await until(lambda: house.engine.find("m", None).spec.parameters["tag"] == "99")
            await until(lambda: house.index() == {"m:1": READY})

    run(test())


def test_a_change_of_groups_alone_is_taken_up_in_place(tmp_path: Path) -> None:
    groups = CONFIG + "instance_group { count: %d kind: KIND_CPU }"

    async def test() -> None:
        async with polled(tmp_path) as house:
            house.write("m", groups % 1)
            await house.begin()
            before = house.engine.find("m", None)
            house.write("m", groups % 3)
            await house.settle()
            assert house.engine.find("m", None) is before
            assert before.spec.instance_count == 3
            assert house.index() == {"m:1": READY}
            house.write("m", groups % 3 + parameter("tag", "new"))
            await house.settle()
            assert house.engine.find("m", None) is not before

    run(test())


def test_a_change_that_takes_more_memory_than_there_is_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path, memory=MemorySettings(budget_bytes=100 << 30)) as house:
            house.write("m")
            await house.begin()
            before = house.engine.find("m", None)
            house.write("m", CONFIG + parameter("memory.bytes", 200 << 30))
            house.write("new", CONFIG + parameter("memory.bytes", 200 << 30))
            await house.settle()
            assert house.engine.find("m", None) is before
            index = house.index()
            assert index["m:1"][0] == "READY"
            assert "--model-memory-budget is" in index["m:1"][1]
            assert "--model-memory-budget is" in index["new:"][1]
            house.write("new")
            await house.settle()
            assert house.index()["new:1"] == READY

    run(test())


@pytest.mark.slow
def test_a_model_that_was_evicted_is_not_a_change(tmp_path: Path) -> None:
    async def test() -> None:
        async with polled(tmp_path, memory=MemorySettings(budget_bytes=100 << 30, demand_s=5)) as house:
            for name in ("a", "b"):
                house.write(name, CONFIG + parameter("memory.bytes", 40 << 30))
            await house.begin()
            house.write("c", CONFIG + parameter("memory.bytes", 40 << 30))
            await house.settle()
            evicted = ("UNAVAILABLE", "unloaded: to make room for 'c'")
            gone = {name for name in ("a", "b") if house.index()[f"{name}:1"] == evicted}
            assert len(gone) == 1
            assert house.index()["c:1"] == READY
            await house.settle()
            (name,) = gone
            assert house.index()[f"{name}:1"] == evicted
            # Touched, as by a copy of the same.
            house.write(name, CONFIG + parameter("memory.bytes", 40 << 30))
            await house.settle()
            assert house.index()[f"{name}:1"] == evicted
            told: asyncio.Future[NaiadError | None] = asyncio.get_running_loop().create_future()
            assert house.engine.demand is not None
            house.engine.demand.wait(name, 4, told.set_result)
            assert await told is None
            assert house.index()[f"{name}:1"] == READY

    run(test())
