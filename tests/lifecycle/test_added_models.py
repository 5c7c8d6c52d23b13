"""Models of added folders: their loads and unloads, and what is left when one fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from naiad.errors import AlreadyExistsError, InternalError, NaiadError, UnsupportedError
from naiad.lifecycle.added_models import MAX_LOADS, AddedModel, AddedModels
from naiad.testing import write_model
from support import event_loops
from support.explicit_manager import CONFIG, LATE, SLOW, House, answered, caller, unloading
from support.loaded_models import Caller


class AddingHouse(House):
    """A manager with nothing but added models."""

    def __init__(self, tmp_path: Path, is_explicit: bool = True, close_s: float = 20) -> None:
        super().__init__(tmp_path / "own", is_explicit=is_explicit)
        self.added = AddedModels(self.manager, self.catalog, is_explicit, close_s)

    async def load(self, folder: Path, name: str) -> AddedModel:
        """Load a model; raises the error of the load."""
        done: asyncio.Future[AddedModel] = asyncio.get_running_loop().create_future()

        def take(model: AddedModel | None, error: NaiadError | None) -> None:
            if model is not None:
                done.set_result(model)
            else:
                done.set_exception(error or AssertionError("neither a model nor an error"))

        self.added.begin_load(folder, name, take)
        return await done

    async def unload(self, model: AddedModel) -> NaiadError | None:
        done: asyncio.Future[NaiadError | None] = asyncio.get_running_loop().create_future()
        self.added.begin_unload(model, done.set_result)
        return await done


def play(house: AddingHouse, scenario: Callable[[AddingHouse], Awaitable[None]]) -> None:
    """Run a scenario with a house whose models must all unload in time in the end."""
    event_loops.play(unloading(house), scenario)


async def busy(house: AddingHouse, folder: Path) -> tuple[AddedModel, Caller]:
    """A model with a request in flight, and who waits for it."""
    model, one = await house.load(folder, "slow"), caller()
    house.engine.find("slow", None).submit(one)
    return model, one


def archive(tmp_path: Path, config: str = CONFIG, name: str = "hash") -> Path:
    return write_model(tmp_path / name, "model", config)


def test_a_model_comes_and_goes(tmp_path: Path) -> None:
    folder = archive(tmp_path)

    async def scenario(house: AddingHouse) -> None:
        for _ in range(2):
            model = await house.load(folder, "given")
            one = caller()
            house.engine.find("given", None).submit(one)
            await answered(one)
            with pytest.raises(AlreadyExistsError):
                await house.load(folder, "other")
            assert await house.unload(model) is None
            assert house.engine.index(ready_only=True) == []
            assert not house.catalog.names()

    play(AddingHouse(tmp_path), scenario)


def test_a_failed_load_leaves_nothing(tmp_path: Path) -> None:
    folder = archive(tmp_path, CONFIG + " nonsense")

    async def scenario(house: AddingHouse) -> None:
        for _ in range(2):
            with pytest.raises(NaiadError, match="failed to load 'given'"):
                await house.load(folder, "given")
            assert house.engine.is_ready()
            assert not house.catalog.names()

    play(AddingHouse(tmp_path), scenario)


def test_other_modes_load_nothing(tmp_path: Path) -> None:
    folder = archive(tmp_path)

    async def scenario(house: AddingHouse) -> None:
        with pytest.raises(UnsupportedError, match="not EXPLICIT"):
            await house.load(folder, "given")

    play(AddingHouse(tmp_path, is_explicit=False), scenario)


def test_an_unload_waits_for_requests_in_flight(tmp_path: Path) -> None:
    folder = archive(tmp_path, SLOW)

    async def scenario(house: AddingHouse) -> None:
        model, one = await busy(house, folder)
        assert await house.unload(model) is None
        assert [error for _, error in one.answers] == [None]

    play(AddingHouse(tmp_path), scenario)


def test_an_unload_does_not_wait_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = archive(tmp_path, SLOW)

    async def scenario(house: AddingHouse) -> None:
        model, one = await busy(house, folder)
        assert await house.unload(model) is None
        assert not one.answers
        await answered(one)

    play(AddingHouse(tmp_path, close_s=0.01), scenario)
    assert "still has requests in flight" in caplog.text


def test_two_loads_of_one_name_at_once(tmp_path: Path) -> None:
    folders = [archive(tmp_path, LATE, name) for name in ("a", "b")]

    async def scenario(house: AddingHouse) -> None:
        outcomes = await asyncio.gather(*(house.load(f, "given") for f in folders), return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AddedModel", "AlreadyExistsError"]

    play(AddingHouse(tmp_path), scenario)


def test_the_loads_under_way_are_bounded(tmp_path: Path) -> None:
    folder = archive(tmp_path, LATE)

    async def scenario(house: AddingHouse) -> None:
        loads = (house.load(folder, "given") for _ in range(MAX_LOADS + 3))
        outcomes = await asyncio.gather(*loads, return_exceptions=True)
        kinds = Counter(type(outcome).__name__ for outcome in outcomes)
        assert kinds == {"AddedModel": 1, "AlreadyExistsError": MAX_LOADS - 1, "UnavailableError": 3}
        (model,) = (outcome for outcome in outcomes if isinstance(outcome, AddedModel))
        assert await house.unload(model) is None
        await house.load(folder, "again")

    play(AddingHouse(tmp_path), scenario)


def test_a_fault_of_the_server_is_an_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = archive(tmp_path)

    async def scenario(house: AddingHouse) -> None:
        async def fail(name: str) -> None:
            raise RuntimeError("a fault")

        monkeypatch.setattr(house.manager, "load_model", fail)
        with pytest.raises(InternalError):
            await house.load(folder, "given")
        assert not house.catalog.names()

    play(AddingHouse(tmp_path), scenario)
