"""Loading and unloading of whole repositories."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from naiad.backend_api.backend import Instance
from naiad.backends import registry
from naiad.backends.builtin.identity import IdentityBackend
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.errors import ModelLoadError
from naiad.lifecycle.loading import version_loader as version_loads
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.testing import write_model
from support.event_loops import run, until
from support.explicit_manager import House, caller, play
from support.http_application import identity_config, load_repository, serving, write_look_up

CONFIG = identity_config(("0", "TYPE_FP32", "[ 1 ]"), more="max_batch_size: 4")


def slow(seconds: float, creation: bool = False) -> str:
    key, value = ("creation_delay_sec", seconds) if creation else ("execute_delay_ms", seconds * 1000)
    return CONFIG + f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def settings(backend: str) -> Mapping[str, str]:
    return {}


def states(manager: ModelManager) -> dict[str, dict[int, str]]:
    return {n: {v.version: str(v.state) for v in e.versions.values()} for n, e in manager.entries.items()}


def test_what_loads_and_what_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_model(tmp_path, "good", CONFIG)
    write_model(tmp_path, "wrong_dims", CONFIG.replace("[ 1 ]", "[ 2 ]", 1))
    write_model(tmp_path, "syntax", CONFIG + "{")
    write_model(tmp_path, "backend", CONFIG.replace("identity", "nonsense"))
    write_model(tmp_path, "broken", 'backend: "onnxruntime"')
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    write_look_up(tmp_path)

    async def test() -> None:
        async with serving(tmp_path) as house:
            entries, found = house.manager.entries, states(house.manager)
            assert found["good"] == found["look_up"] == {1: "READY"}
            assert found["syntax"] == {}
            assert entries["syntax"].problem is not None
            for name in ("wrong_dims", "backend", "broken"):
                assert found[name] == {1: "UNAVAILABLE"}
                assert entries[name].versions[1].reason
            assert "nonsense" in entries["backend"].versions[1].reason
            assert house.manager.loaded

    with caplog.at_level(logging.INFO):
        run(test())
    assert "loading: good:1" in caplog.text
    assert "successfully loaded 'good' version 1" in caplog.text
    assert "failed to load 'backend' version 1: " in caplog.text
    assert "failed to load 'syntax': " in caplog.text


@pytest.mark.slow
def test_a_load_that_takes_long_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less often the longer it takes, and no more once it is done."""
    monkeypatch.setattr(version_loads, "FIRST_WORD_S", 0.1)
    write_model(tmp_path, "slow", slow(1, creation=True))
    write_model(tmp_path, "quick", CONFIG)

    async def test() -> None:
        async with serving(tmp_path):
            said = [r.getMessage() for r in caplog.records if "still loading" in r.getMessage()]
            times = ("0.1", "0.3", "0.7", "1.5", "3.1")[: len(said)]
            assert said == [f"still loading: slow:1, for {seconds} s now" for seconds in times]
            assert len(said) >= 2
            await asyncio.sleep(1)
            assert sum("still loading" in r.getMessage() for r in caplog.records) == len(said)

    with caplog.at_level(logging.INFO):
        run(test())


@pytest.mark.parametrize(
    ("policy", "loaded"),
    [
        ("", [10]),
        ("version_policy { latest { num_versions: 2 } }", [2, 10]),
        ("version_policy { all { } }", [1, 2, 10]),
        ("version_policy { specific { versions: [ 1, 2 ] } }", [1, 2]),
    ],
)
def test_version_policies(tmp_path: Path, policy: str, loaded: list[int]) -> None:
    write_model(tmp_path, "m", CONFIG + policy, versions=(1, 2, 10))

    async def test() -> None:
        async with serving(tmp_path) as house:
            assert states(house.manager) == {"m": dict.fromkeys(loaded, "READY")}
            assert house.engine.find("m", None).version == max(loaded)

    run(test())


def test_one_version_that_fails_leaves_the_others(tmp_path: Path) -> None:
    write_look_up(tmp_path, "version_policy { all { } }")
    (tmp_path / "look_up" / "2").mkdir()
    (tmp_path / "look_up" / "2" / "model.onnx").write_bytes(b"no model")

    async def test() -> None:
        async with serving(tmp_path) as house:
            assert states(house.manager) == {"look_up": {1: "READY", 2: "UNAVAILABLE"}}
            assert house.engine.find("look_up", None).version == 1

    run(test())


@pytest.mark.slow
def test_models_load_side_by_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "naiad")
    for i in range(4):
        write_model(tmp_path, f"m{i}", slow(0.6, creation=True))

    async def test() -> None:
        manager = ModelManager(LoadSettings(settings, cores=1), 4)
        await load_repository(manager, tmp_path)
        # One after the other, each would be loaded before the next one begins.
        said = [r.getMessage() for r in caplog.records if re.match("loading: |successfully loaded ", r.getMessage())]
        assert [text.startswith("loading: ") for text in said[:2]] == [True, True]
        assert all(found == {1: "READY"} for found in states(manager).values())
        assert all(e.serving and e.serving.statistics.load_seconds >= 0.6 for e in manager.entries.values())
        assert await manager.unload_all(20)

    run(test())


def test_the_loop_is_free_while_models_load(tmp_path: Path) -> None:
    write_model(tmp_path, "m", slow(0.2, creation=True))

    async def test() -> None:
        manager = ModelManager(LoadSettings(settings), 1)
        loading = asyncio.ensure_future(load_repository(manager, tmp_path))
        await until(lambda: states(manager) == {"m": {1: "LOADING"}})
        turns = 0
        while not loading.done():
            await asyncio.sleep(0.01)
            turns += 1
        # One or two, if a load kept the loop for itself.
        assert turns > 3
        assert await manager.unload_all(20)

    run(test())


class Quitter(IdentityBackend):
    """Calls for the end of the process where its parameter says."""

    def start(self, spec: ModelSpec) -> None:
        self._where = spec.parameters["where"]
        if self._where == "start":
            raise SystemExit("start")
        super().start(spec)

    @property
    def runs_inline(self) -> bool:
        return False

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        if self._where == "instance":
            raise KeyboardInterrupt
        return super().create_instance(group, index)


@pytest.mark.parametrize(("where", "text"), [("start", "SystemExit: start"), ("instance", "KeyboardInterrupt")])
def test_a_model_cannot_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, text: str) -> None:
    monkeypatch.setitem(registry.BACKENDS, "quitter", registry.BackendEntry(f"{__name__}:Quitter"))
    parameter = f'parameters {{ key: "where" value {{ string_value: "{where}" }} }}'
    write_model(tmp_path, "m", CONFIG.replace("identity", "quitter") + parameter)
    write_model(tmp_path, "good", CONFIG)

    async def test() -> None:
        async with serving(tmp_path) as house:
            assert states(house.manager) == {"m": {1: "UNAVAILABLE"}, "good": {1: "READY"}}
            assert text in house.manager.entries["m"].versions[1].reason

    run(test())


class Holder(IdentityBackend):
    """Keeps Python's lock for 0.4 seconds while it loads."""

    def start(self, spec: ModelSpec) -> None:
        ctypes.PyDLL(None).usleep(400_000)
        super().start(spec)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_load_that_keeps_the_loop_from_running_is_a_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    monkeypatch.setitem(registry.BACKENDS, "holder", registry.BackendEntry(f"{__name__}:Holder"))
    caplog.set_level(logging.INFO)

    async def test() -> None:
        house = House(tmp_path)
        house.write("m", CONFIG.replace("identity", "holder"))
        house.write("quick")
        for name in ("quick", "m"):
            await house.manager.load_model(name)
        assert await house.manager.unload_all(20)

    run(test(), loop)
    (found,) = re.findall(r"all requests waited for up to ([\d.]+) s while (\S+) was loading", caplog.text)
    assert float(found[0]) > 0.25
    assert found[1] == "m:1"


def test_a_refused_model_stands_in_the_list(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        manager = ModelManager(LoadSettings(settings), 1)
        manager.refuse("m", ModelLoadError("because"))
        assert str(manager.entries["m"].problem) == "because"
        assert await manager.unload_all(1)

    run(test())
    assert "failed to load 'm': because" in caplog.text


# The end


def test_what_was_accepted_is_answered_before_the_end(tmp_path: Path) -> None:
    write_model(tmp_path, "m", slow(0.02))

    async def test() -> None:
        manager = ModelManager(LoadSettings(settings), 1)
        await load_repository(manager, tmp_path)
        model = manager.entries["m"].serving
        assert model is not None
        callers = [caller(i) for i in range(5)]
        for one in callers:
            model.submit(one)
        assert await manager.unload_all(20)
        assert all(len(c.answers) == 1 and c.answers[0][1] is None for c in callers)

    run(test())
    assert not [t for t in threading.enumerate() if t.name.startswith("naiad-m_")]


# The time is measured.
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("timeout", [0.0, 0.1])
def test_a_stuck_model_does_not_hold_the_end_up(tmp_path: Path, timeout: float) -> None:
    write_model(tmp_path, "stuck", slow(1.4))
    write_model(tmp_path, "idle", CONFIG)

    async def test() -> None:
        manager = ModelManager(LoadSettings(settings), 1)
        await load_repository(manager, tmp_path)
        model = manager.entries["stuck"].serving
        assert model is not None
        waiting = caller(1)
        model.submit(waiting)
        await until(lambda: model.statistics.pending == 0)
        begun = time.monotonic()
        assert not await manager.unload_all(timeout)
        assert time.monotonic() - begun < timeout + 1.5
        await asyncio.wait_for(waiting.done.wait(), 30)
        assert len(waiting.answers) == 1

    run(test())


def test_nothing_to_wait_for_needs_no_time(tmp_path: Path) -> None:
    write_model(tmp_path, "m", CONFIG)

    async def test() -> None:
        manager = ModelManager(LoadSettings(settings), 1)
        await load_repository(manager, tmp_path)
        assert await manager.unload_all(0.0)

    run(test())


def test_cores_are_counted_or_given() -> None:
    assert LoadSettings(settings, cores=3).usable_cores == 3
    assert LoadSettings(settings).usable_cores >= 1


@pytest.mark.slow
def test_the_end_comes_while_a_version_is_loaded_beside_another_that_did_not_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "naiad")

    async def scenario(found: House) -> None:
        found.write("m", slow(0.4, creation=True) + "version_policy { all {} }", (1, 2))
        await found.manager.load_model("m")
        (found.repository / "m" / "2" / "weights").write_text("others")
        loading = asyncio.ensure_future(found.manager.load_model("m"))
        await until(lambda: caplog.text.count("loading: m:2") == 2)
        assert await found.manager.unload_all(20)
        await asyncio.wait_for(loading, 20)
        assert caplog.text.count("loading: m:1") == 1
        assert states(found.manager) == {"m": {1: "UNAVAILABLE", 2: "UNAVAILABLE"}}

    play(tmp_path, scenario)
