"""Agents around real loads: who is asked and told what, in which order, and what an agent can do wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from naiad.cli.check import run as check
from naiad.errors import InternalError, ModelLoadError
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.agents.agents import AgentDirectory
from naiad.repository.local.discover import discover
from naiad.repository.local.overrides import Overrides
from support.config_texts import parameter
from support.event_loops import run, until
from support.explicit_manager import AS_JSON, CONFIG, READY, SLOW, House, answered, caller, unloading

JOURNAL = """
from pathlib import Path

class RepositoryAgent:
    def act(self, call):
        with open(call.parameters["journal"], "a") as file:
            file.write(f"{call.parameters.get('tag', '')}{call.action} {call.model} {call.location}\\n")
        if call.action == call.parameters.get("fails"):
            raise RuntimeError("this agent says no")
"""
MOVER = """
import shutil

class RepositoryAgent:
    def act(self, call):
        if call.action == "LOAD":
            folder = call.new_folder()
            shutil.copytree(call.location, folder, dirs_exist_ok=True)
            config = folder / "config.pbtxt"
            config.write_text(config.read_text().replace("max_batch_size: 4", "max_batch_size: 7"))
            return folder
"""


# Waits until a file is there, and tries to get a folder then.
WAITS = """
import time

class RepositoryAgent:
    def act(self, call):
        if call.action != "LOAD":
            return
        beside = call.location.parent.parent
        while not (beside / "go").exists():
            time.sleep(0.01)
        try:
            call.new_folder()
        except RuntimeError as error:
            (beside / "late").write_text(str(error))
"""


def agent(name: str, **parameters: object) -> str:
    entries = " ".join(f'parameters {{ key: "{k}" value: "{v}" }}' for k, v in parameters.items())
    return f'agents {{ name: "{name}" {entries} }}'


def engage(name: str, **parameters: object) -> str:
    return engage_all(agent(name, **parameters))


def engage_all(*agents: str) -> str:
    return f" model_repository_agents {{ {' '.join(agents)} }} "


class AgentHouse(House):
    """A manager in explicit mode with a folder of agents; ``limit_s`` is for each action of an agent."""

    def __init__(self, folder: Path, limit_s: float = 0) -> None:
        self.agents = folder / "agents"
        self.journal = folder / "journal"
        super().__init__(folder / "models", agents=AgentDirectory(self.agents, limit_s))

    def agent(self, name: str, text: str) -> None:
        (self.agents / name).mkdir(parents=True, exist_ok=True)
        (self.agents / name / "agent.py").write_text(text)

    def told(self) -> list[str]:
        """What the agents were told, without places."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line.split()[0] for line in lines]

    async def ends(self) -> None:
        await until(lambda: all(not entry.unloading for entry in self.manager.entries.values()))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


def house(tmp_path: Path, agent: str = JOURNAL, limit_s: float = 0) -> AbstractAsyncContextManager[AgentHouse]:
    found = AgentHouse(tmp_path, limit_s)
    found.agent("mine", agent)
    return unloading(found)


def test_an_agent_is_told_of_a_life(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", CONFIG + "version_policy { all { } }" + engage("mine", journal=found.journal), (1, 2))
            await found.manager.load_model("m")
            assert found.told() == ["LOAD", "LOAD_COMPLETE"]
            assert f"LOAD m {found.repository / 'm'}" in found.journal.read_text()
            await found.manager.load_model("m")
            assert found.told() == ["LOAD", "LOAD_COMPLETE"]
            await found.manager.unload_model("m")
            await found.ends()
            assert found.told() == ["LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"]

    run(test())


def test_an_agent_that_does_not_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, WAITS, limit_s=0.2) as found:
            found.agent("journal", JOURNAL)
            both = engage_all(agent("journal", journal=found.journal), agent("mine"))
            found.write("m", CONFIG + both)
            with pytest.raises(
                InternalError,
                match=r"the repository agent 'mine' refuses model 'm': it took longer than 0.2 s \(--repoagent-timeout",
            ):
                await found.manager.load_model("m")
            assert found.told() == ["LOAD", "LOAD_FAIL"]
            (tmp_path / "go").touch()
            # The file is there before its text is.
            await until(lambda: (tmp_path / "late").exists() and (tmp_path / "late").read_text())
            assert (tmp_path / "late").read_text() == "folders are made at LOAD only"
            await found.manager.load_model("m")
            assert found.index()["m:1"] == READY

    run(test())


@pytest.mark.slow
def test_a_reload_begins_before_the_earlier_copy_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", SLOW + engage("mine", journal=found.journal, tag="1"))
            await found.manager.load_model("m")
            one = caller()
            found.engine.find("m", None).submit(one)
            found.write("m", CONFIG + engage("mine", journal=found.journal, tag="2"))
            await found.manager.load_model("m")
            assert found.told() == ["1LOAD", "1LOAD_COMPLETE", "2LOAD", "2LOAD_COMPLETE"]
            await answered(one)
            await found.ends()
            assert found.told()[4:] == ["1UNLOAD", "1UNLOAD_COMPLETE"]

    run(test())


def test_agents_are_asked_in_order_and_may_refuse(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m")
            await found.manager.load_model("m")
            before = found.engine.find("m", None)
            three = (("1", ""), ("2", "LOAD"), ("3", ""))
            agents = (agent("mine", journal=found.journal, tag=tag, fails=fails) for tag, fails in three)
            found.write("m", CONFIG + engage_all(*agents))
            text = "^failed to load 'm', failed to poll from model repository: the repository agent 'mine' refuses "
            with pytest.raises(InternalError, match=text + "model 'm': this agent says no"):
                await found.manager.load_model("m")
            assert found.told() == ["1LOAD", "2LOAD", "1LOAD_FAIL"]
            assert found.engine.find("m", None) is before
            assert "this agent says no" in found.index()["m:1"][1]

    run(test())


def test_agents_are_told_of_a_load_that_fails(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, MOVER) as found:
            found.agent("journal", JOURNAL)
            both = engage_all(agent("mine"), agent("journal", journal=found.journal))
            found.write("m", CONFIG.replace("identity", "nonsense") + both)
            with pytest.raises(ModelLoadError):
                await found.manager.load_model("m")
            assert found.told() == ["LOAD", "LOAD_FAIL"]
            found.write("m", CONFIG + "version_policy { specific { versions: [ 5 ] } }" + both)
            with pytest.raises(ModelLoadError, match="at least one version must be available"):
                await found.manager.load_model("m")
            assert found.told() == ["LOAD", "LOAD_FAIL"] * 2

    run(test())


def test_what_an_agent_raises_later_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            for action in ("LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"):
                found.write("m", CONFIG + engage("mine", journal=found.journal, fails=action))
                await found.manager.load_model("m")
                assert found.index() == {"m:1": READY}
            await found.manager.unload_model("m")
            await found.ends()
            assert len(found.told()) == 12

    run(test())
    for action in ("LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"):
        assert f"the repository agent 'mine' failed at {action} of model 'm'" in caplog.text


def test_an_agent_puts_the_model_elsewhere(tmp_path: Path, temporary: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, MOVER) as found:
            found.agent("journal", JOURNAL)
            found.write("m", CONFIG + engage_all(agent("mine"), agent("journal", journal=found.journal)))
            await found.manager.load_model("m")
            assert found.engine.find("m", None).spec.max_batch_size == 7
            assert len(list(temporary.iterdir())) == 1
            assert f"LOAD m {temporary}" in found.journal.read_text()
            await found.manager.load_model("m")
            assert len(list(temporary.iterdir())) == 1
            found.write("m", CONFIG + engage("mine") + parameter("tag", "new"))
            await found.manager.load_model("m")
            await found.ends()
            assert len(list(temporary.iterdir())) == 1
            await found.manager.unload_model("m")
            await found.ends()
            assert not list(temporary.iterdir())

    run(test())


def test_a_folder_of_the_agents_own_with_another_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(
            tmp_path, "class RepositoryAgent:\n def act(self, call): return call.parameters['to']"
        ) as found:
            elsewhere = tmp_path / "elsewhere" / "other_name"
            (elsewhere / "3").mkdir(parents=True)
            (elsewhere / "config.pbtxt").write_text(CONFIG)
            found.write("m", CONFIG + engage("mine", to=elsewhere))
            await found.manager.load_model("m")
            assert found.index() == {"m:3": READY}
            await found.manager.unload_model("m")
            await found.ends()
            assert elsewhere.is_dir()

    run(test())


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("nonsense(", "the repository agent 'mine' cannot be used: SyntaxError"),
        ("", "cannot be used: AttributeError"),
        ("RepositoryAgent = 5", "cannot be used: TypeError"),
        ("class RepositoryAgent: pass", "refuses model 'm': 'RepositoryAgent' object has no attribute 'act'"),
        ("class RepositoryAgent:\n def act(self, call): return 5", "puts model 'm' into 5, which is no folder"),
        ("class RepositoryAgent:\n def act(self, call): return '/nosuch'", "'/nosuch', which is no folder"),
        ("class RepositoryAgent:\n def act(self, call): return call.new_folder()", "at least one version must be"),
        ("class RepositoryAgent:\n def act(self, call): raise SystemExit(3)", "SystemExit: 3"),
        ("class RepositoryAgent:\n def act(self, call):\n  call.new_folder(); raise ValueError", "refuses model 'm'"),
    ],
)
def test_bad_agents_fail_the_load_and_nothing_else(tmp_path: Path, agent: str, text: str) -> None:
    async def test() -> None:
        async with house(tmp_path, agent) as found:
            found.write("good")
            found.write("m", CONFIG + engage("mine"))
            await found.manager.load_model("good")
            with pytest.raises((InternalError, ModelLoadError)) as caught:
                await found.manager.load_model("m")
            assert text in str(caught.value)
            assert found.index()["good:1"] == READY
            # An agent that is repaired is used at once.
            found.agent("mine", "class RepositoryAgent:\n def act(self, call): return None")
            await found.manager.load_model("m")
            assert found.index()["m:1"] == READY

    run(test())


@pytest.mark.parametrize("name", ["nope", "", "../mine", "a/b", ".", ".."])
def test_agents_that_are_not_there(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", CONFIG + engage(name))
            with pytest.raises(InternalError, match=r"there is no repository agent|cannot be the name of a repository"):
                await found.manager.load_model("m")

    run(test())


def test_the_checksum_agent_guards_files_of_a_request(tmp_path: Path, temporary: Path) -> None:
    content = b"weights"
    config = json.loads(AS_JSON % 4)

    def agents(digest: str) -> dict[str, Any]:
        return {"agents": [{"name": "checksum", "parameters": {"MD5:1/some": digest}}]}

    async def test() -> None:
        async with house(tmp_path) as found:
            files = {"file:1/some": base64.b64encode(content).decode()}
            wrong = {**config, "model_repository_agents": agents("0" * 32)}
            with pytest.raises(InternalError, match=r"Mismatched MD5 hash for file 1/some, expect: 0{32}, got: "):
                await found.manager.load_model("m", Overrides(json.dumps(wrong), files))
            assert not list(temporary.iterdir())
            good = {**config, "model_repository_agents": agents(hashlib.md5(content).hexdigest())}
            await found.manager.load_model("m", Overrides(json.dumps(good), files))
            assert found.index() == {"m:1": READY}
            assert len(list(temporary.iterdir())) == 1
            await found.manager.unload_model("m")
            await found.ends()
            assert not list(temporary.iterdir())

    run(test())


def test_an_agent_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site"
    (package / "offered-1.0.dist-info").mkdir(parents=True)
    (package / "offered-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    points = "[naiad.repository_agents]\noffered = offered_agent:Journal\nbroken = no_such_module:Agent\n"
    (package / "offered-1.0.dist-info" / "entry_points.txt").write_text(points)
    (package / "offered_agent.py").write_text(JOURNAL.replace("class RepositoryAgent", "class Journal"))
    monkeypatch.syspath_prepend(str(package))

    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", CONFIG + engage("offered", journal=found.journal))
            await found.manager.load_model("m")
            assert found.told() == ["LOAD", "LOAD_COMPLETE"]
            found.write("m", CONFIG + engage("broken"))
            with pytest.raises(InternalError, match="'broken' cannot be used: ModuleNotFoundError"):
                await found.manager.load_model("m")

    run(test())


def test_models_of_the_start_have_agents_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, MOVER) as found:
            found.write("m", CONFIG + engage("mine"))
            settings = LoadSettings(lambda backend: {}, cores=1, agents=AgentDirectory(found.agents))
            manager = ModelManager(settings, 1)
            source = discover([found.repository], []).models["m"]
            await manager.load_all([source])
            serving = manager.entries["m"].serving
            assert serving is not None
            assert serving.spec.max_batch_size == 7
            assert await manager.unload_all(20)

    run(test())


@pytest.mark.slow
def test_the_end_does_not_wait_for_an_agent_that_never_returns(tmp_path: Path) -> None:
    """It unloads in a thread that nobody waits for longer than the end may take."""
    go_on = tmp_path / "go on"
    text = f"""
import os, time
class RepositoryAgent:
    def act(self, call):
        while call.action == 'UNLOAD' and not os.path.exists({str(go_on)!r}):
            time.sleep(0.01)
"""

    async def test() -> None:
        found = AgentHouse(tmp_path)
        found.agent("mine", text)
        found.write("m", CONFIG + engage("mine"))
        await found.manager.load_model("m")
        assert not await asyncio.wait_for(found.manager.unload_all(0.1), 20)
        go_on.touch()

    run(test())


def test_agents_are_asked_when_models_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = AgentHouse(tmp_path)
    found.agent("mine", JOURNAL)
    found.write("m", CONFIG + engage("mine", journal=found.journal))

    def problems() -> int:
        return check(
            (found.repository,),
            disable_auto_complete=False,
            model_config_name="",
            backend_config={},
            repoagent_directory=str(found.agents),
        )

    assert problems() == 0
    assert found.told() == ["LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"]
    found.write("m", CONFIG + engage("mine", journal=found.journal, fails="LOAD"))
    assert problems() == 1
    assert "this agent says no" in capsys.readouterr().out
    shutil.rmtree(found.repository)


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "model-repository.md").read_text()
    (example,) = re.findall(r"```python\n(import zipfile.*?)```", page, re.DOTALL)

    async def test() -> None:
        async with house(tmp_path, example) as found:
            inside = tmp_path / "inside"
            (inside / "2").mkdir(parents=True)
            (inside / "config.pbtxt").write_text(CONFIG)
            found.write("m", engage("mine", archive="all.zip"))
            shutil.make_archive(str(found.repository / "m" / "all"), "zip", inside)
            await found.manager.load_model("m")
            assert found.index() == {"m:2": READY}

    run(test())
