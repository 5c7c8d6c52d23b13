"""Loading, reloading and unloading of single models while others serve."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
import weakref
from pathlib import Path

import pytest

from naiad.errors import InternalError, ModelLoadError, NaiadError, NotFoundError, ServerStoppingError, UnavailableError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.state.states import ModelState
from naiad.repository.catalog import Catalog
from naiad.repository.local.overrides import NO_OVERRIDES, Overrides, UnusableFilesError
from support.config_texts import parameter
from support.event_loops import run, until
from support.explicit_manager import AS_JSON, CONFIG, GONE, LATE, READY, SLOW, House, answered, caller, play


def test_load_and_unload(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        assert found.index() == {}
        await found.manager.load_model("m")
        assert found.index() == {"m:1": READY}
        assert found.engine.is_ready()
        await found.manager.unload_model("m")
        with pytest.raises(NotFoundError, match="has no available versions"):
            found.engine.find("m", None)
        await found.done({"m:1": GONE})
        with pytest.raises(UnavailableError, match="not at ready state"):
            found.engine.find("m", "1")
        assert found.engine.is_ready()
        await found.manager.unload_model("m")
        await found.manager.unload_model("nope")
        await found.manager.load_model("m")
        assert found.index() == {"m:1": READY}

    play(tmp_path, scenario)


def test_the_index_knows_what_was_never_loaded(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        told: list[NaiadError | None] = []
        found.engine.refresh_index(told.append)
        await until(lambda: told == [None])
        assert found.engine.index(False) == [{"name": "m"}]
        assert found.engine.index(True) == []
        assert found.engine.is_ready()

    play(tmp_path, scenario)


def test_nothing_happens_when_nothing_changed(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        await found.manager.load_model("m")
        before = found.engine.find("m", None)
        await found.manager.load_model("m")
        assert found.engine.find("m", None) is before
        found.write("m")
        await found.manager.load_model("m")
        assert found.engine.find("m", None) is before, "the same configuration, written again"
        (found.repository / "m" / "notes.txt").write_text("another file")
        await found.manager.load_model("m")
        assert found.engine.find("m", None) is not before

    play(tmp_path, scenario)


def test_a_reload_switches_all_versions_at_once(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", CONFIG + "version_policy { all { } }", (1, 2))
        await found.manager.load_model("m")
        before = found.engine.find("m", None)
        assert before.version == 2
        (found.repository / "m" / "3").mkdir()
        found.write("m", LATE + "version_policy { specific { versions: [ 1, 3 ] } }")
        loading = asyncio.ensure_future(found.manager.load_model("m"))
        while not loading.done():
            assert found.engine.find("m", None) is before or loading.done() or found.engine.find("m", None).version == 3
            assert found.engine.is_ready()
            await asyncio.sleep(0.01)
        await loading
        assert found.engine.find("m", None).version == 3
        await found.done({"m:1": READY, "m:2": GONE, "m:3": READY})

    play(tmp_path, scenario)


def test_a_reload_leaves_versions_alone_of_which_nothing_changed(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        def policy(*versions: int) -> str:
            return CONFIG + f" version_policy {{ specific {{ versions: {list(versions)} }} }}"

        async def reloaded() -> set[int]:
            """The versions that a load makes anew."""
            before = {v: entry.model for v, entry in found.manager.entries["m"].versions.items()}
            await found.manager.load_model("m")
            ready = found.manager.entries["m"].ready()
            assert all(entry.state is ModelState.READY and not entry.reason for entry in ready)
            return {entry.version for entry in ready if entry.model is not before.get(entry.version)}

        found.write("m", policy(1, 2), (1, 2, 3))
        folder = found.repository / "m"
        await found.manager.load_model("m")
        (folder / "2" / "weights").write_text("new")
        (folder / "4").mkdir()
        found.write("m", policy(1, 2, 3, 4))
        assert await reloaded() == {2, 3, 4}
        shown = found.engine.model_config("m", "1").version_policy.specific.versions
        assert list(shown) == [1, 2, 3, 4]
        found.write("m", policy(1, 4))
        assert await reloaded() == set()
        assert [entry.version for entry in found.manager.entries["m"].ready()] == [1, 4]
        (folder / "shared.py").touch()
        assert await reloaded() == {1, 4}
        found.write("m", policy(1, 4) + parameter("tag", "new"))
        assert await reloaded() == {1, 4}

    play(tmp_path, scenario)


@pytest.mark.slow
def test_the_earlier_copy_answers_what_it_took(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", SLOW)
        await found.manager.load_model("m")
        before = found.engine.find("m", None)
        callers = [caller(i) for i in range(3)]
        for one in callers:
            before.submit(one)
        found.write("m", CONFIG)
        await found.manager.load_model("m")
        after = found.engine.find("m", None)
        assert after is not before
        assert before.in_flight
        with pytest.raises(ServerStoppingError):
            before.submit(caller())
        quick = caller(7)
        after.submit(quick)
        await answered(quick)
        for one in callers:
            await answered(one)
        await until(lambda: found.manager.entries["m"].unloading == 0)

    play(tmp_path, scenario)


@pytest.mark.slow
def test_an_unload_waits_for_what_was_accepted(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", SLOW)
        await found.manager.load_model("m")
        waiting = caller()
        found.engine.find("m", None).submit(waiting)
        await found.manager.unload_model("m")
        assert found.index() == {"m:1": ("UNLOADING", "")}
        assert found.engine.is_ready()
        await answered(waiting)
        await found.done({"m:1": GONE})

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("broken", "error", "text"),
    [
        (CONFIG + "{", InternalError, "^failed to load 'm', failed to poll from model repository: "),
        (
            CONFIG.replace("max_batch_size: 4", "max_batch_size: -4"),
            InternalError,
            "^failed to load 'm', failed to poll from model repository: ",
        ),
        (
            CONFIG.replace("identity", "nonsense"),
            ModelLoadError,
            r"^load failed for model 'm': version 1 is at UNAVAILABLE state: .*nonsense.*;\n$",
        ),
        (
            CONFIG
            + 'sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: [ 4 ] '
            + 'initial_state { name: "i" data_type: TYPE_INT32 dims: [ 4 ] } } }',
            ModelLoadError,
            "^load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: "
            "initial_state setting expects state 'S' to have state_data set",
        ),
        (
            CONFIG + "version_policy { specific { versions: [ 5 ] } }",
            ModelLoadError,
            "^load failed for model 'm': at least one version must be available under the version policy of model 'm'",
        ),
    ],
)
def test_a_failed_reload_leaves_what_serves(tmp_path: Path, broken: str, error: type[NaiadError], text: str) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        await found.manager.load_model("m")
        before = found.engine.find("m", None)
        found.write("m", broken)
        with pytest.raises(error, match=text):
            await found.manager.load_model("m")
        assert found.engine.find("m", None) is before
        state, reason = found.index()["m:1"]
        assert state == "READY"
        assert reason.startswith("serves as before, it could not be loaded again: ")
        assert found.engine.is_ready()
        one = caller()
        before.submit(one)
        await answered(one)
        found.write("m")
        await found.manager.load_model("m")
        assert found.index() == {"m:1": READY}

    play(tmp_path, scenario)


def test_a_reload_of_which_one_version_fails_is_no_reload(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", CONFIG)
        await found.manager.load_model("m")
        before = found.engine.find("m", None)
        (found.repository / "m" / "2").mkdir()
        where = 'parameters { key: "creation_delay_sec" value { string_value: "never" } }'
        found.write("m", CONFIG + "version_policy { all { } }" + where)
        with pytest.raises(ModelLoadError, match="version 1 is at UNAVAILABLE"):
            await found.manager.load_model("m")
        assert found.engine.find("m", None) is before
        assert list(found.index()) == ["m:1"]

    play(tmp_path, scenario)


def test_a_failed_load_shows_in_readiness_until_it_is_unloaded(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", CONFIG.replace("identity", "nonsense"))
        with pytest.raises(ModelLoadError):
            await found.manager.load_model("m")
        assert found.index()["m:1"][0] == "UNAVAILABLE"
        assert not found.engine.is_ready()
        await found.manager.unload_model("m")
        assert found.index() == {"m:1": GONE}
        assert found.engine.is_ready()
        with pytest.raises(InternalError, match=r"^failed to load 'nope', failed to poll from model repository: there"):
            await found.manager.load_model("nope")
        assert found.engine.is_ready()

    play(tmp_path, scenario)


def test_why_a_model_cannot_be_loaded_again_after_its_unload(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        await found.manager.load_model("m")
        await found.manager.unload_model("m")
        await found.done({"m:1": GONE})
        found.write("m", CONFIG + "{")
        with pytest.raises(InternalError):
            await found.manager.load_model("m")
        state, reason = found.index()["m:1"]
        assert state == "UNAVAILABLE"
        assert reason != "unloaded"
        assert not found.engine.is_ready()
        found.write("m")
        await found.manager.load_model("m")
        assert found.index() == {"m:1": READY}
        assert found.engine.is_ready()

    play(tmp_path, scenario)


@pytest.mark.slow
def test_why_a_model_cannot_be_loaded_again_while_its_unload_ends(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", SLOW)
        await found.manager.load_model("m")
        waiting = caller()
        found.engine.find("m", None).submit(waiting)
        await found.manager.unload_model("m")
        found.write("m", CONFIG + "{")
        with pytest.raises(InternalError):
            await found.manager.load_model("m")
        assert found.index() == {"m:1": ("UNLOADING", "")}
        assert not found.engine.is_ready()
        await answered(waiting)
        await until(lambda: found.manager.entries["m"].unloading == 0)
        state, reason = found.index()["m:1"]
        assert state == "UNAVAILABLE"
        assert reason != "unloaded"
        assert not found.engine.is_ready()
        await found.manager.unload_model("m")
        assert found.index() == {"m:1": GONE}
        assert found.engine.is_ready()

    play(tmp_path, scenario)


def test_the_start_goes_on_when_somebody_took_a_model_away_before(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", CONFIG + "{")
        source = Catalog((found.repository,)).find("m")
        ended: list[NaiadError | None] = []
        found.manager.begin_load("m", NO_OVERRIDES, ended.append)
        found.manager.begin_unload("m", False, ended.append)
        # Now both have their places before that of the start.
        await asyncio.sleep(0)
        found.write("m")
        await found.manager.load_all([source])
        assert len(ended) == 2
        assert found.index()["m:1"] == READY

    play(tmp_path, scenario)


def test_the_start_leaves_alone_what_somebody_loaded_before(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        await found.manager.load_model("m")
        before = found.engine.find("m", None)
        await found.manager.load_all([Catalog((found.repository,)).find("m")])
        assert found.engine.find("m", None) is before

    play(tmp_path, scenario)


def test_a_repository_that_is_gone_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        for expected in (["m"], ["m"]):
            told: list[NaiadError | None] = []
            found.engine.refresh_index(told.append)
            await until(lambda told=told: told == [None])
            assert [row["name"] for row in found.engine.index(False)] == expected
            if found.repository.exists():
                found.repository.rename(tmp_path / "away")

    play(tmp_path, scenario)


def test_outside_of_explicit_mode_all_is_refused(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        for work in (found.manager.load_model("m"), found.manager.unload_model("m")):
            with pytest.raises(
                UnavailableError, match=r"^explicit model load / unload is not allowed if polling is enabled"
            ):
                await work

    play(tmp_path, scenario, is_explicit=False)


@pytest.mark.slow
def test_loads_and_an_unload_at_once_end_in_a_sane_state(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", LATE)
        manager = found.manager
        await asyncio.gather(manager.load_model("m"), manager.load_model("m"), manager.unload_model("m"))
        await found.done({"m:1": GONE})
        await asyncio.gather(manager.load_model("m"), manager.unload_model("m"), manager.load_model("m"))
        assert found.index() == {"m:1": READY}
        await until(lambda: manager.entries["m"].unloading == 0)

    play(tmp_path, scenario)


@pytest.mark.slow
def test_as_many_load_together_as_there_are_threads(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        for name in "abcd":
            found.write(name, LATE)
        loading = asyncio.gather(*(found.manager.load_model(name) for name in "abcd"))
        together = 0
        while not loading.done():
            together = max(together, sum(t.name == "naiad-load" for t in threading.enumerate()))
            await asyncio.sleep(0.01)
        await loading
        # Beside those that load, one may find out what is to be loaded.
        assert 2 <= together <= 4

    play(tmp_path, scenario, threads=2)


# What a request brings


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders are made here."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_configuration_stays_until_the_files_change(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        await found.manager.load_model("m", Overrides(AS_JSON % 2))
        assert found.engine.find("m", None).spec.max_batch_size == 2
        await found.manager.load_model("m")
        assert found.engine.find("m", None).spec.max_batch_size == 2
        await found.manager.load_model("m", Overrides(AS_JSON % 3))
        assert found.engine.find("m", None).spec.max_batch_size == 3
        found.write("m")
        await found.manager.load_model("m")
        assert found.engine.find("m", None).spec.max_batch_size == 4

    play(tmp_path, scenario)


@pytest.mark.parametrize("text", ["{", "5", "[]", '{"nonsense": 1}', '{"name": "other", "backend": "identity"}'])
def test_a_wrong_configuration_is_refused(tmp_path: Path, text: str) -> None:
    async def scenario(found: House) -> None:
        found.write("m", 'backend: "onnxruntime"')
        with pytest.raises(InternalError, match=r"^failed to load 'm', failed to poll from model repository: "):
            await found.manager.load_model("m", Overrides(text))

    play(tmp_path, scenario)


def test_files_replace_the_folder_and_go_with_the_model(tmp_path: Path, temporary: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m")
        files = Overrides(AS_JSON % 2, {"file:7/any": b"x"})
        for name in ("m", "new"):
            await found.manager.load_model(name, files)
            assert found.engine.find(name, None).version == 7
        assert len(list(temporary.iterdir())) == 2
        await found.manager.load_model("m", files)
        await until(lambda: len(list(temporary.iterdir())) == 2)
        await found.manager.load_model("m")
        assert found.engine.find("m", None).version == 1
        await until(lambda: len(list(temporary.iterdir())) == 1)
        with pytest.raises(InternalError, match="there is no model of the name 'new'"):
            await found.manager.load_model("new")
        assert found.engine.find("new", None).version == 7
        await found.manager.unload_model("new")
        await until(lambda: list(temporary.iterdir()) == [])

    play(tmp_path, scenario)


def test_files_that_are_not_loaded_leave_nothing(tmp_path: Path, temporary: Path) -> None:
    async def scenario(found: House) -> None:
        with pytest.raises(InternalError, match="'config' must be specified for model file override"):
            await found.manager.load_model("m", Overrides(None, {"file:1/x": b""}))
        with pytest.raises(ModelLoadError, match="at least one version"):
            await found.manager.load_model("m", Overrides(AS_JSON % 1, {"file:x": b""}))
        with pytest.raises(UnusableFilesError):
            await found.manager.load_model("m", Overrides(AS_JSON % 1, {"file:1/x": "???"}))
        with pytest.raises(ModelLoadError, match="nonsense"):
            await found.manager.load_model(
                "m", Overrides((AS_JSON % 1).replace("identity", "nonsense"), {"file:1/x": b""})
            )
        assert list(temporary.iterdir()) == []

    play(tmp_path, scenario)


# The end, and what is left


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [0.0, 0.1])
def test_the_end_does_not_wait_for_ever_for_what_unloads(tmp_path: Path, timeout: float) -> None:
    async def test() -> None:
        found = House(tmp_path / "models")
        found.write("m", CONFIG + parameter("execute_delay_ms", 1500))
        await found.manager.load_model("m")
        waiting = caller()
        found.engine.find("m", None).submit(waiting)
        await found.manager.unload_model("m")
        await asyncio.sleep(0)
        assert not await found.manager.unload_all(timeout)
        await answered(waiting)

    run(test())


def test_the_end_waits_for_what_loads(tmp_path: Path) -> None:
    async def test() -> None:
        found = House(tmp_path / "models", threads=1)
        for name in "ab":
            found.write(name, LATE)
        loading = [asyncio.ensure_future(found.manager.load_model(name)) for name in "ab"]
        await until(lambda: "LOADING" in str(found.index()))
        assert await found.manager.unload_all(20)
        results = await asyncio.gather(*loading, return_exceptions=True)
        # Whichever of them came first.
        (loaded,) = [name for name, result in zip("ab", results, strict=True) if result is None]
        assert isinstance(results["ba".index(loaded)], NaiadError)
        assert found.index()[f"{loaded}:1"] == GONE
        with pytest.raises(ServerStoppingError):
            await found.manager.load_model("a")

    run(test())


def test_nobody_holds_a_model_that_was_unloaded(tmp_path: Path) -> None:
    class Follower:
        def __init__(self) -> None:
            self.models: list[LoadedModel] = []

        def forget(self, model: LoadedModel) -> None:
            self.models.remove(model)

    async def scenario(found: House) -> None:
        found.write("m")
        await found.manager.load_model("m")
        follower = Follower()
        follower.models.append(found.engine.find("m", None))
        found.engine.follow(follower)
        model = weakref.ref(follower.models[0])
        await found.manager.unload_model("m")
        assert follower.models == []
        await found.done({"m:1": GONE})
        gc.collect()
        assert model() is None

    play(tmp_path, scenario)
