"""Python models that load and unload models: ``pb_utils.load_model``, ``unload_model`` and ``is_model_ready``."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import wait_until
from support.python_models import DOUBLES, Client, client_of, write_python_model

# What it does with which model is told by the parameters of a request.
OPERATES = """
import json
import os
import threading

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        said = json.loads(request.parameters())
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        found = 1.0
        if said["do"] == "load":
            files = {k: v.encode() for k, v in json.loads(said.get("files", "{}")).items()}
            pb_utils.load_model(said["name"], said.get("config", ""), files or None)
        elif said["do"] == "unload":
            pb_utils.unload_model(model_name=said["name"], unload_dependents=bool(said.get("dependents")))
        else:
            found = float(pb_utils.is_model_ready(said["name"], said.get("version", "")))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full_like(x, found))])
"""
# Does so while it loads; a failure is its own.
IN_INITIALIZE = """
class TritonPythonModel:
    def initialize(self, args):
        pb_utils.{call}("{name}")

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
"""
# Notes in a file what became of it.
IN_FINALIZE = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]

    def finalize(self):
        try:
            pb_utils.load_model("doubles")
        except pb_utils.TritonModelException as error:
            open("{note}", "w").write(str(error))
"""
WHEN_COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        pb_utils.load_model("doubles")
        return config

    def execute(self, requests):
        return []
"""
EXPLICIT = ("--model-control-mode=explicit",)


def config(**more: Any) -> str:
    """A configuration for a model of one input and one output."""
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    return json.dumps(
        {"backend": "python", "input": [{"name": "X", **tensor}], "output": [{"name": "Y", **tensor}], **more}
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_python_model(folder, "operates", OPERATES)
    write_python_model(folder, "doubles", DOUBLES)
    return folder


def operate(client: Client, do: str, name: str, **more: str | bool) -> float:
    """Let the model do something; 1 when it worked and the answer is no other."""
    found = client.infer("operates", 0.0, parameters={"do": do, "name": name, **more}, client_timeout=20)
    return float(found.flat[0])


def state(client: Client, name: str) -> tuple[str, str]:
    """State and reason of the only version of a model."""
    rows = [r for r in client.server.index() if r["name"] == name]
    assert len(rows) == 1
    return rows[0].get("state", ""), rows[0].get("reason", "")


@pytest.mark.slow
def test_a_model_loads_and_unloads_others(repository: Path, tmp_path: Path) -> None:
    with client_of(repository, tmp_path / "log", *EXPLICIT, "--load-model=operates") as client:
        assert state(client, "doubles") == ("", "")
        assert operate(client, "ready", "doubles") == 0
        operate(client, "load", "doubles")
        assert operate(client, "ready", "doubles") == 1
        assert operate(client, "ready", "doubles", version="2") == 0
        assert client.infer("doubles", 3.0).tolist() == [[6.0]]
        operate(client, "unload", "doubles", dependents=True)
        assert operate(client, "ready", "doubles") == 0
        wait_until(lambda: state(client, "doubles") == ("UNAVAILABLE", "unloaded"), 10, "unloads")
        wait_until(lambda: len(client.children()) == 1, 5, "has no process left")


@pytest.mark.slow
def test_a_model_brings_configuration_and_files(repository: Path, tmp_path: Path) -> None:
    source = "import triton_python_backend_utils as pb_utils\n" + DOUBLES.replace("2 * x", "3 * x")
    files = json.dumps({"file:1/model.py": source})
    with client_of(repository, tmp_path / "log", *EXPLICIT, "--load-model=operates") as client:
        operate(client, "load", "triples", config=config(max_batch_size=2), files=files)
        assert client.infer("triples", 3.0).tolist() == [[9.0]]
        with pytest.raises(InferenceServerException, match=r"Failed to load model: .*'config' must be specified"):
            operate(client, "load", "triples", files=files)
        with pytest.raises(InferenceServerException, match=r"names no file of the model"):
            operate(client, "load", "triples", config=config(), files=json.dumps({"file:../model.py": source}))
        with pytest.raises(InferenceServerException, match="unexpected directory name"):
            operate(client, "load", "doubles", config=config(name="other"))
        assert client.infer("triples", 3.0).tolist() == [[9.0]]


@pytest.mark.slow
def test_failures_are_told_to_the_model(repository: Path, tmp_path: Path) -> None:
    write_python_model(repository, "broken", "raise ValueError('as it is')")
    with client_of(repository, tmp_path / "log", *EXPLICIT, "--load-model=operates") as client:
        with pytest.raises(
            InferenceServerException, match="Failed to load model: failed to load 'nope', failed to poll"
        ):
            operate(client, "load", "nope")
        with pytest.raises(InferenceServerException, match=r"version 1 is at UNAVAILABLE state: .*as it is"):
            operate(client, "load", "broken")
        assert operate(client, "unload", "nope") == 1
        with pytest.raises(InferenceServerException, match="failed to get model version"):
            operate(client, "ready", "operates", version="one")


@pytest.mark.slow
def test_outside_of_explicit_mode_it_is_refused(repository: Path, tmp_path: Path) -> None:
    with client_of(repository, tmp_path / "log") as client:
        for do in ("load", "unload"):
            with pytest.raises(
                InferenceServerException, match="explicit model load / unload is not allowed if polling"
            ):
                operate(client, do, "doubles")
        assert operate(client, "ready", "doubles") == 1


@pytest.mark.slow
def test_a_model_reloads_and_unloads_itself(repository: Path, tmp_path: Path) -> None:
    with client_of(repository, tmp_path / "log", *EXPLICIT, "--load-model=operates") as client:
        (before,) = client.children()
        operate(client, "load", "operates", config=config(max_batch_size=4))
        wait_until(lambda: before not in client.children(), 10, "the earlier copy ends")
        (after,) = client.children()
        assert after.pid != before.pid
        operate(client, "unload", "operates")
        wait_until(lambda: client.children() == [], 10, "it ends")
        assert state(client, "operates") == ("UNAVAILABLE", "unloaded")


# While it loads


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_a_load_inside_initialize_needs_no_free_thread(tmp_path: Path, threads: int) -> None:
    repository = tmp_path / "models"
    write_python_model(repository, "a", IN_INITIALIZE.format(call="load_model", name="b"))
    write_python_model(repository, "b", IN_INITIALIZE.format(call="load_model", name="c"))
    write_python_model(repository, "c", DOUBLES)
    arguments = (*EXPLICIT, "--load-model=a", f"--model-load-thread-count={threads}")
    with client_of(repository, tmp_path / "log", *arguments) as client:
        assert [state(client, name)[0] for name in "abc"] == ["READY"] * 3
        assert client.infer("c", 1.0).tolist() == [[2.0]]


@pytest.mark.slow
def test_one_loads_what_waits_for_the_only_thread(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_python_model(repository, "a", IN_INITIALIZE.format(call="load_model", name="b"))
    write_python_model(repository, "b", DOUBLES)
    arguments = (*EXPLICIT, "--load-model=a", "--load-model=b", "--model-load-thread-count=1")
    with client_of(repository, tmp_path / "log", *arguments) as client:
        assert [state(client, name)[0] for name in "ab"] == ["READY"] * 2


@pytest.mark.parametrize("call", ["load_model", "unload_model"])
@pytest.mark.parametrize("other", ["a", "b"])
def test_models_that_load_each_other_are_refused(tmp_path: Path, call: str, other: str) -> None:
    repository = tmp_path / "models"
    write_python_model(repository, "a", IN_INITIALIZE.format(call=call if other == "a" else "load_model", name=other))
    write_python_model(repository, "b", IN_INITIALIZE.format(call=call, name="a"))
    with client_of(repository, tmp_path / "log", *EXPLICIT) as client:
        answer = client.server.post("/v2/repository/models/a/load", {})
        assert answer.status == 400
        assert "Models cannot load or unload themselves or each other while they load" in answer.error
        assert state(client, "a")[0] == "UNAVAILABLE"
        assert client.children() == []
        (repository / "a" / "1" / "model.py").write_text("import triton_python_backend_utils as pb_utils\n" + DOUBLES)
        assert client.server.post("/v2/repository/models/a/load", {}).status == 200
        assert client.infer("a", 1.0).tolist() == [[2.0]]


@pytest.mark.slow
def test_two_that_load_each_other_at_the_same_time(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    for name, other in (("a", "b"), ("b", "a")):
        write_python_model(repository, name, IN_INITIALIZE.format(call="load_model", name=other))
    arguments = (*EXPLICIT, "--load-model=*", "--exit-on-error=false")
    with client_of(repository, tmp_path / "log", *arguments) as client:
        assert {state(client, name)[0] for name in "ab"} <= {"READY", "UNAVAILABLE"}
        assert "Models cannot load or unload themselves or each other while they load" in client.server.log


@pytest.mark.slow
def test_inside_finalize_it_is_refused(repository: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    write_python_model(repository, "last", IN_FINALIZE.format(note=note))
    with client_of(repository, tmp_path / "log", *EXPLICIT, "--load-model=last") as client:
        assert client.server.post("/v2/repository/models/last/unload", {}).status == 200
        wait_until(lambda: note.exists() and note.read_text(), 10, "is closed")
        assert note.read_text().startswith("Failed to load model: ")
        assert "while the model that asks is being closed" in note.read_text()
        assert state(client, "doubles") == ("", "")


@pytest.mark.slow
def test_while_completing_it_is_refused(repository: Path, tmp_path: Path) -> None:
    write_python_model(repository, "completes", WHEN_COMPLETING)
    with client_of(repository, tmp_path / "log", *EXPLICIT) as client:
        answer = client.server.post("/v2/repository/models/completes/load", {})
        assert answer.status == 400
        assert "Failed to load model" in answer.error


@pytest.mark.slow
def test_the_answer_to_a_child_that_died_does_no_harm(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    asks = """
        import threading

        class TritonPythonModel:
            def initialize(self, args):
                threading.Thread(target=pb_utils.load_model, args=("slow",), daemon=True).start()
                time.sleep(0.2)
                os._exit(3)

            def execute(self, requests):
                return []
    """
    slow = IN_INITIALIZE.format(call="is_model_ready", name="slow").replace("pb_utils.is", "time.sleep(1); pb_utils.is")
    write_python_model(repository, "asks", asks)
    write_python_model(repository, "slow", slow)
    with client_of(repository, tmp_path / "log", *EXPLICIT) as client:
        assert client.server.post("/v2/repository/models/asks/load", {}).status == 400
        wait_until(lambda: state(client, "slow")[0] == "READY", 10, "loads")
        assert np.array_equal(client.infer("slow", 1.0), [[1.0]])


@pytest.mark.slow
def test_no_request_fails_while_a_python_model_is_loaded_anew(repository: Path, tmp_path: Path) -> None:
    model_file = repository / "doubles" / "1" / "model.py"
    failures: list[BaseException] = []
    answered = [0, 0, 0]
    ended = threading.Event()

    def ask(client: Client, number: int) -> None:
        while not ended.is_set():
            try:
                assert client.infer("doubles", 1.0, 2.0).tolist() == [[2.0, 4.0]]
            except Exception as error:
                failures.append(error)
                return
            answered[number] += 1

    with client_of(repository, tmp_path / "log", *EXPLICIT, "--load-model=doubles") as client:
        callers = [threading.Thread(target=ask, args=(client, number)) for number in range(3)]
        for caller in callers:
            caller.start()
        try:
            for second in range(1, 11):
                os.utime(model_file, (second, second))
                assert client.server.post("/v2/repository/models/doubles/load", {}).status == 200
                before = sum(answered)
                wait_until(lambda before=before: failures or sum(answered) > before + 20, 10, "requests are answered")
        finally:
            ended.set()
            for caller in callers:
                caller.join()
        assert failures == []
        wait_until(lambda: len(client.children()) == 1, 10, "earlier copies end")
        assert client.server.log.count("successfully loaded 'doubles'") == 11
