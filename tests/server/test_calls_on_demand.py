"""Calls of Python models to models that are not loaded, on a real server: they load them, and wait like requests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from naiad.testing import RunningServer, wait_until
from server.test_memory import EXPLICIT, ready, server_of
from support.config_texts import parameter
from support.versioned_models import PYTHON, SCALES, served, write_python

CALLS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(model_name="MODEL", requested_output_names=["Y"], inputs=[x])
            found = call.exec()
            if found.has_error():
                answers.append(pb_utils.InferenceResponse([], pb_utils.TritonError(found.error().message())))
            else:
                y = pb_utils.get_output_tensor_by_name(found, "Y")
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.as_numpy())]))
        return answers
"""

# Calls only when both of the callers run.
MEETS = (
    CALLS.replace(
        "answers = []", "open(os.path.join(FOLDER, str(os.getpid())), 'w').close(); self.meet(); answers = []", 1
    )
    + """
    def meet(self):
        while len(os.listdir(FOLDER)) < 2:
            time.sleep(0.01)
"""
)


def taking(size: int) -> str:
    """It takes so many GB."""
    return parameter("memory.bytes", size << 30)


def calling(repository: Path, name: str, called: str, more: str = "", source: str = CALLS) -> None:
    write_python(repository, name, 1, source.replace("MODEL", called), more)


def request(values: int) -> dict[str, Any]:
    return {"inputs": [{"name": "X", "datatype": "FP32", "shape": [values], "data": [1.0] * values}]}


@pytest.mark.slow
@pytest.mark.parametrize("values", [2, 100_000])
def test_a_call_has_its_model_loaded_and_keeps_its_tensors(tmp_path: Path, values: int) -> None:
    calling(tmp_path / "models", "outer", "middle")
    calling(tmp_path / "models", "middle", "scales")
    write_python(tmp_path / "models", "scales", 1)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs", 60) as server:
        assert served(server, "outer", request(values)) == 1
        assert ready(server) == {"outer", "middle", "scales"}
        assert "naiad_model_demand_loads 3" in server.metrics_page()
        assert "naiad_model_demand_waiting 0" in server.metrics_page()


@pytest.mark.slow
def test_a_caller_stays_and_is_told_soon_when_there_is_no_room_beside_it(tmp_path: Path) -> None:
    models = tmp_path / "models"
    calling(models, "outer", "large", taking(60))
    write_python(models, "large", 1, more=taking(60))
    calling(models, "fits", "small", taking(60))
    write_python(models, "small", 1, more=taking(30))
    write_python(models, "other", 1, more=taking(30))
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 100 << 30, "--load-on-demand-secs", 300) as server:
        answer = server.infer("outer", PYTHON)
        assert (answer.status, "there is no room for model 'large'" in answer.error) == (500, True), answer.error
        assert ready(server) == {"outer"}
        assert served(server, "other", PYTHON) == 1
        # The caller was unused for longer than what goes for the model that it calls.
        assert served(server, "fits", PYTHON) == 1
        assert ready(server) == {"fits", "small"}
        # For a second after the refusal it is not tried again.
        wait_until(lambda: server.infer("large", PYTHON).status == 200, 10, "there is room now, and it is tried")


@pytest.mark.slow
def test_a_call_waits_no_longer_than_it_may_and_leaves_with_its_caller(tmp_path: Path) -> None:
    models, go = tmp_path / "models", tmp_path / "go"
    waits = f"        while not os.path.exists({str(go)!r}):\n            time.sleep(0.01)\n"
    source = SCALES.replace("        self.factor", f"{waits}        self.factor")
    calling(models, "outer", "late")
    write_python(models, "late", 1, source)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs", 5, "--load-model=outer") as server:
        answer = server.infer("outer", PYTHON)
        assert (answer.status, "'late' was not loaded within 5 s" in answer.error) == (500, True), answer.error
        leaving = threading.Event()
        with ThreadPoolExecutor() as pool:
            pool.submit(_ask_and_leave, server, leaving)
            wait_until(lambda: "naiad_model_demand_waiting 1" in server.metrics_page(), 10, "the call waits")
            leaving.set()
            wait_until(lambda: "naiad_model_demand_waiting 0" in server.metrics_page(), 10, "it left")
        go.touch()
        wait_until(lambda: "late" in ready(server), 20, "it is loaded")
        assert served(server, "outer", PYTHON) == 1


def _ask_and_leave(server: RunningServer, leaving: threading.Event) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        x = tritonclient.grpc.InferInput("X", [2], "FP32")
        x.set_data_from_numpy(np.ones(2, np.float32))
        call = client.async_infer("outer", [x], lambda result, error: None)
        leaving.wait(30)
        call.cancel()


@pytest.mark.slow
def test_a_model_that_somebody_unloaded_is_not_called(tmp_path: Path) -> None:
    calling(tmp_path / "models", "outer", "scales")
    write_python(tmp_path / "models", "scales", 1)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs", 60) as server:
        assert served(server, "outer", PYTHON) == 1
        assert server.post("/v2/repository/models/scales/unload", {}).status == 200
        answer = server.infer("outer", PYTHON)
        assert answer.status == 500
        assert "Error when running inference: " in answer.error


@pytest.mark.slow
def test_of_two_callers_that_have_each_others_room_one_is_refused_at_once(tmp_path: Path) -> None:
    models, met = tmp_path / "models", tmp_path / "met"
    met.mkdir()
    for caller, called in (("left", "one"), ("right", "two")):
        calling(models, caller, called, taking(40), MEETS.replace("FOLDER", repr(str(met))))
        write_python(models, called, 1, more=taking(50))
    with (
        server_of(
            tmp_path,
            EXPLICIT,
            *("--model-memory-budget", 100 << 30, "--load-on-demand-secs", 300),
            *("--load-model=left", "--load-model=right"),
        ) as server,
        ThreadPoolExecutor() as pool,
    ):
        asked = [pool.submit(server.infer, name, PYTHON) for name in ("left", "right")]
        refused, answered = sorted((one.result(30) for one in asked), key=lambda answer: -answer.status)
        assert (refused.status, answered.status) == (500, 200), (refused.error, answered.error)
        assert "What would have to go waits for this load, or for one behind it: " in refused.error
        # The caller that was answered has taken the room of the other one. A caller that had to go before it called
        # is gone itself once it is answered.
        wait_until(
            lambda: ready(server) in ({"left", "one"}, {"right", "two"}, {"one"}, {"two"}), 10, "one pair is left"
        )


@pytest.mark.slow
def test_a_caller_that_is_evicted_before_it_calls_does_not_wait_for_its_own_room(tmp_path: Path) -> None:
    models, came, go = tmp_path / "models", tmp_path / "came", tmp_path / "go"
    wait = f"open({str(came)!r}, 'w').close()\n        while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    calling(models, "left", "one", taking(40))
    waiting = CALLS.replace("answers = []", f"{wait}\n        answers = []", 1)
    calling(models, "right", "two", taking(40), source=waiting)
    write_python(models, "one", 1, more=taking(50))
    write_python(models, "two", 1, more=taking(50))
    options = ("--model-memory-budget", 100 << 30, "--load-on-demand-secs", 300)
    with (
        server_of(tmp_path, EXPLICIT, *options, "--load-model=left", "--load-model=right") as server,
        ThreadPoolExecutor() as pool,
    ):
        right = pool.submit(server.infer, "right", PYTHON)
        wait_until(came.exists, 10, "it runs")
        left = pool.submit(server.infer, "left", PYTHON)
        server.wait_for("unloading 'right'")
        go.touch()
        refused = left.result(30)
        assert refused.status == 500
        assert "waits for this load, or for one behind it: 'left', 'right'" in refused.error
        assert right.result(30).status == 200
