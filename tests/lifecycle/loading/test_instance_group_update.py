"""A change of ``instance_group`` alone: instances come and go, and nothing else happens to the model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson

from lifecycle.loading.test_warmup_samples import LONG, NOTES, notes, sample
from naiad.errors import NaiadError, UnavailableError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.worker.instance import ProcessInstance
from naiad.lifecycle.loading import instance_group_update as in_place
from naiad.repository.local.overrides import Overrides
from support import worker_models as process_models
from support.child_processes import children
from support.config_texts import parameter
from support.event_loops import run, until
from support.explicit_manager import CONFIG, GONE, READY, SLOW, House, answered, caller, house
from support.framework_models import WAYS, install, write_rowdy
from support.noted_requests import submit
from support.worker_models import Caller


def groups(*counts: int) -> str:
    return "".join(f"instance_group {{ count: {count} kind: KIND_CPU }}\n" for count in counts)


def names(model: LoadedModel) -> list[str]:
    return [instance.name for instance in model.instances]


@contextlib.asynccontextmanager
async def python_model(tmp_path: Path, methods: str, more: str, count: int) -> AsyncIterator[tuple[House, LoadedModel]]:
    async with house(tmp_path) as found:
        process_models.write_model(found.repository, methods, more + groups(count))
        await found.manager.load_model("m")
        yield found, found.engine.find("m", None)
    assert children() == []


def elsewhere(methods: str, folder: Path) -> str:
    """A model that writes its files into ``folder``: in its own they would be a change of the model."""
    return methods.replace("os.path.dirname(__file__)", repr(str(folder)))


async def again(found: House, more: str, *counts: int) -> None:
    """Load the Python model with other instance groups."""
    found.write("m", process_models.CONFIG + more + groups(*counts))
    await found.manager.load_model("m")


@pytest.mark.parametrize("config", [CONFIG, SLOW.replace("800", "20")], ids=["inline", "thread"])
def test_instances_come_and_go(tmp_path: Path, config: str) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", config + groups(1))
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            for counts, expected in (
                ((3,), ["m_0_0", "m_0_1", "m_0_2"]),
                ((1,), ["m_0_0"]),
                ((1, 1), ["m_0_0", "m_1_0"]),
                ((2,), ["m_0_0", "m_1_0"]),
            ):
                found.write("m", config + groups(*counts))
                callers = [caller(i) for i in range(6)]
                for one in callers:
                    model.submit(one)
                await found.manager.load_model("m")
                assert found.engine.find("m", None) is model
                assert found.index() == {"m:1": READY}
                shown = found.engine.model_config("m", None)
                assert [group.count for group in shown.instance_group] == list(counts)
                for one in callers:
                    await answered(one)
                await until(lambda wanted=expected: names(model) == wanted)
            (statistics,) = found.engine.statistics("m", None)["model_stats"]
            assert statistics["inference_count"] == 24

    run(test())


def test_any_other_change_loads_the_model_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", CONFIG + groups(1))
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            found.write("m", CONFIG.replace("max_batch_size: 4", "max_batch_size: 2") + groups(2))
            await found.manager.load_model("m")
            after = found.engine.find("m", None)
            assert after is not model
            (found.repository / "m" / "1" / "weights").write_text("other")
            found.write("m", CONFIG.replace("max_batch_size: 4", "max_batch_size: 2") + groups(3))
            await found.manager.load_model("m")
            assert found.engine.find("m", None) is not after

    run(test())


def test_groups_that_come_with_a_request(tmp_path: Path) -> None:
    text = """{"backend": "identity", "max_batch_size": 4, "instance_group": [{"count": %d, "kind": "KIND_CPU"}],
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]}"""

    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m")
            await found.manager.load_model("m", Overrides(text % 1, {}))
            model = found.engine.find("m", None)
            await found.manager.load_model("m", Overrides(text % 3, {}))
            assert found.engine.find("m", None) is model
            assert len(names(model)) == 3

    run(test())


def test_groups_of_gpus_are_updated_on_the_processor(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, gpu_fallback=True) as found:
            found.write("m", CONFIG + "instance_group { count: 1 kind: KIND_GPU }")
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            found.write("m", CONFIG + "instance_group { count: 2 kind: KIND_GPU }")
            await found.manager.load_model("m")
            assert found.engine.find("m", None) is model
            assert [group.kind for group in model.spec.instance_groups] == ["KIND_CPU"]
            assert len(names(model)) == 2

    run(test())


def test_wrong_groups_change_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", CONFIG + groups(1))
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            found.write("m", CONFIG + "instance_group { count: 2 kind: KIND_GPU }")
            with pytest.raises(Exception, match="has kind KIND_GPU but no GPUs are available"):
                await found.manager.load_model("m")
            assert found.engine.find("m", None) is model
            state, reason = found.index()["m:1"]
            assert state == "READY"
            assert reason.startswith("serves as before, it could not be loaded again: ")
            assert names(model) == ["m_0_0"]
            found.write("m", CONFIG + groups(2))
            await found.manager.load_model("m")
            assert found.index() == {"m:1": READY}
            assert len(names(model)) == 2

    run(test())


def test_processes_of_a_python_model_stay(tmp_path: Path) -> None:
    async def test() -> None:
        async with python_model(tmp_path, elsewhere(NOTES, tmp_path), sample(), 1) as (found, model):
            first = process_models.process_of(model)
            await again(found, sample(), 3)
            assert found.engine.find("m", None) is model
            assert process_models.process_of(model) == first
            # The new ones are warm, and the first one is not warmed up once more.
            assert sorted(who for who, _ in notes(tmp_path / "any")) == ["m_0_0", "m_0_1", "m_0_2"]
            callers = [Caller(float(i)) for i in range(9)]
            submit(model, *callers)
            for number, one in enumerate(callers):
                assert (await one.outputs())["y"].tolist() == [[float(number)]]
            await again(found, sample(), 1)
            await until(lambda: names(model) == ["m_0_0"])
            await until(lambda: children() == [first.pid])
            assert model.problem == ""

    run(test())


@pytest.mark.slow
def test_a_process_that_leaves_answers_what_it_holds(tmp_path: Path) -> None:
    streams = """
        def execute(self, requests):
            import threading
            for request in requests:
                threading.Thread(target=self.answer, args=[request.get_response_sender()]).start()

        def answer(self, sender):
            while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
                time.sleep(0.01)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.ones((1, 1), np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    decoupled = "model_transaction_policy { decoupled: true }\n"

    async def test() -> None:
        async with python_model(tmp_path, streams, decoupled, 2) as (found, model):
            callers = [Caller(1.0) for _ in range(4)]
            submit(model, *callers)
            await until(lambda: all(i.is_idle is False for i in model.instances))  # type: ignore[union-attr]
            found.write("m", process_models.CONFIG + decoupled + groups(1))
            await found.manager.load_model("m")
            assert len(names(model)) == 2
            late = Caller(2.0)
            submit(model, late)
            (tmp_path / "models" / "m" / "1" / "go").write_text("")
            for one in (*callers, late):
                await asyncio.wait_for(one.done.wait(), 10)
                assert [error for _, error, _ in one.parts] == [None, None]
            await until(lambda: names(model) == ["m_0_0"])

    run(test())


@pytest.mark.slow
def test_an_instance_that_leaves_ends_with_its_last_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = """
        def execute(self, requests):
            while not os.path.exists(os.path.join(FOLDER, "go")):
                time.sleep(0.01)
            found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in found]
    """
    monkeypatch.setattr(in_place, "END_S", 0.01)
    is_idle, looks = ProcessInstance.is_idle, list[str]()

    def look(instance: ProcessInstance) -> bool:
        looks.append(instance.name)
        return bool(is_idle.__get__(instance))

    async def test() -> None:
        async with python_model(tmp_path, waits.replace("FOLDER", repr(str(tmp_path))), "", 2) as (found, model):
            callers = [Caller(float(i)) for i in range(2)]
            for busy, one in enumerate(callers, 1):
                submit(model, one)
                await until(lambda wanted=busy: sum(not i.is_idle for i in model.instances) == wanted)
            monkeypatch.setattr(ProcessInstance, "is_idle", property(look))
            await again(found, "", 1)
            assert model.leaving == 1
            # Long enough for whoever would look again; a look at any later time would be missed, and fail nothing.
            await asyncio.sleep(0.2)
            assert (model.leaving, looks) == (1, [])
            (tmp_path / "go").touch()
            for number, one in enumerate(callers):
                assert (await one.outputs())["y"].tolist() == [[float(number)]]
            await until(lambda: names(model) == ["m_0_0"])
            assert model.leaving == 0
            monkeypatch.setattr(ProcessInstance, "is_idle", is_idle)

    run(test())


# In its second life the second instance waits in its warm-up, and the third one in its first.
GATED = """
    def initialize(self, args):
        self.file = os.path.join(FOLDER, args["model_instance_name"])

    def execute(self, requests):
        if self.file.endswith("_2") or (self.file.endswith("_1") and os.path.exists(self.file)):
            open(self.file + "_waits", "w").close()
            while not os.path.exists(self.file + "_goes"):
                time.sleep(0.01)
        open(self.file, "w").close()
        found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in found]
"""


@pytest.mark.slow
def test_a_process_that_ended_while_others_came_serves_when_it_is_warm_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with python_model(tmp_path, GATED.replace("FOLDER", repr(str(tmp_path))), sample(), 1) as (found, model):
            loading = asyncio.ensure_future(again(found, sample(), 3))
            await until((tmp_path / "m_0_2_waits").exists)
            # The second instance has its own warm-up behind it, whose failure would end the load.
            await until(
                lambda: (tmp_path / "m_0_1").exists() and model.instances[1].events is model.instances[0].events
            )
            process_models.process_of(model, 1).kill()
            await until((tmp_path / "m_0_1_waits").exists)
            (tmp_path / "m_0_2_goes").touch()
            await loading
            # It warms up, and gets nothing else to do meanwhile.
            callers = [Caller(float(i)) for i in range(8)]
            submit(model, *callers)
            for number, one in enumerate(callers):
                assert (await one.outputs())["y"].tolist() == [[float(number)]]
            (tmp_path / "m_0_1_goes").touch()
            await until(
                lambda: (
                    not model.problem
                    and sorted(i.name for i in model.instances if i.is_idle) == ["m_0_0", "m_0_1", "m_0_2"]
                )
            )

    run(test())


@pytest.mark.slow
def test_a_new_process_that_fails_changes_nothing(tmp_path: Path) -> None:
    fails = """
        def initialize(self, args):
            if args["model_instance_name"].endswith("_2"):
                raise ValueError("no third one")
    """

    async def test() -> None:
        async with python_model(tmp_path, fails + textwrap.indent(process_models.ECHO, 4 * " "), "", 1) as (
            found,
            model,
        ):
            with pytest.raises(Exception, match="version 1 is at UNAVAILABLE state: ValueError: no third one"):
                await again(found, "", 3)
            assert names(model) == ["m_0_0"]
            assert len(children()) == 1
            one = Caller(3.0)
            submit(model, one)
            assert (await one.outputs())["y"].tolist() == [[3.0]]
            await again(found, "", 2)
            assert names(model) == ["m_0_0", "m_0_1"]

    run(test())


@pytest.mark.slow
def test_instances_that_leave_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "MAX_LEAVING", 1)
    monkeypatch.setattr(in_place, "END_S", 0.01)
    slow = CONFIG + parameter("execute_delay_ms", 1500)

    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", slow + groups(2))
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            callers = [caller(i) for i in range(2)]
            for one in callers:
                model.submit(one)
                # Each in a batch of its own.
                await until(lambda: model.statistics.pending == 0)
            found.write("m", slow + groups(1))
            await found.manager.load_model("m")
            for _ in range(2):
                found.write("m", slow + groups(3))
                with pytest.raises(UnavailableError, match="1 earlier instances of model 'm' still finish"):
                    await found.manager.load_model("m")
            assert names(model)[:1] == ["m_0_0"]
            for one in callers:
                await answered(one)
            await until(lambda: names(model) == ["m_0_0"])
            await found.manager.load_model("m")
            assert names(model) == ["m_0_0", "m_0_1", "m_0_2"]
            assert found.index() == {"m:1": READY}

    run(test())


@pytest.mark.slow
def test_an_unload_while_an_instance_leaves(tmp_path: Path) -> None:
    async def test() -> None:
        async with python_model(tmp_path, elsewhere(LONG, tmp_path), "", 3) as (found, model):
            callers = [Caller(1.0) for _ in range(12)]
            submit(model, *callers)
            await again(found, "", 1)
            await found.manager.unload_model("m")
            for one in callers:
                assert await one.outputs()
            await found.done({"m:1": GONE})
            assert children() == []

    run(test())


@pytest.mark.slow
def test_the_server_ends_while_instances_come(tmp_path: Path) -> None:
    slow = """
        def initialize(self, args):
            if args["model_instance_name"] != "m_0_0":
                open(FILE, "w").close()
                time.sleep(30)
    """
    methods = slow.replace("FILE", repr(str(tmp_path / "begun")))

    async def test() -> None:
        echo = textwrap.indent(process_models.ECHO, 4 * " ")
        async with python_model(tmp_path, methods + echo, "", 1) as (found, model):
            loading = asyncio.ensure_future(again(found, "", 3))
            await until(lambda: (tmp_path / "begun").exists())
            await found.manager.unload_all(10)
            with pytest.raises(NaiadError):
                await loading
            assert names(model) == []

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_framework_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    install(tmp_path / "code", monkeypatch)

    async def test() -> None:
        async with house(tmp_path) as found:
            write_rowdy(found.repository, way)
            file = found.repository / "m" / "config.pbtxt"
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            for count in (3, 1, 2):
                file.write_text(file.read_text().partition("instance_group")[0] + parameter_of(way) + groups(count))
                callers: list[Any] = [Caller(float(i)) for i in range(8)]
                submit(model, *callers)
                await found.manager.load_model("m")
                assert found.engine.find("m", None) is model
                for number, one in enumerate(callers):
                    assert (await one.outputs())["y"].tolist() == [[2.0 * number]]
                await until(lambda wanted=count: len(names(model)) == wanted)

    run(test())


def parameter_of(way: str) -> str:
    return f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}\n'


def test_the_same_configuration_is_no_change(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            found.write("m", CONFIG + groups(2))
            await found.manager.load_model("m")
            model = found.engine.find("m", None)
            found.write("m", "# written again\n" + CONFIG + groups(2))
            await found.manager.load_model("m")
            assert found.engine.find("m", None) is model
            # What callers are shown is the completed configuration; they change the count and send it back.
            shown = json.loads(MessageToJson(found.engine.model_config("m", None), preserving_proto_field_name=True))
            await found.manager.load_model("m", Overrides(json.dumps(shown), {}))
            assert found.engine.find("m", None) is model
            shown["instance_group"][0]["count"] = 3
            await found.manager.load_model("m", Overrides(json.dumps(shown), {}))
            assert found.engine.find("m", None) is model
            assert len(names(model)) == 3
            await found.manager.load_model("m", Overrides(json.dumps(shown), {}))
            assert found.engine.find("m", None) is model
            assert len(names(model)) == 3
            shown["max_batch_size"] = 2
            await found.manager.load_model("m", Overrides(json.dumps(shown), {}))
            assert found.engine.find("m", None) is not model

    run(test())


def test_idle_instances_have_ended_when_the_load_is_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with python_model(tmp_path, process_models.ECHO, "", 3) as (found, model):
            assert len(children()) == 3
            await again(found, "", 1)
            assert found.engine.find("m", None) is model
            assert len(names(model)) == 1
            assert len(children()) == 1

    run(test())
