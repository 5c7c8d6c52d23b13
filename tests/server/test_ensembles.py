"""Ensembles over HTTP and gRPC, with the clients that their users have."""

from __future__ import annotations

import json
import queue
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, serving, wait_until
from support import served_sequences as sequence_models
from support.python_models import HEAD
from support.served_ensembles import chain, step, write_ensemble, write_identity
from support.served_models import SUM_AND_DIFFERENCE, numbers, tensor, write_model

ADDS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            more = pb_utils.get_input_tensor_by_name(request, "INPUT1")
            y = x + 1 if more is None else x + more.as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", y)]))
        return answers
"""
COUNTS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            sender = request.get_response_sender()
            for n in range(int(x.flat[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.full_like(x, n))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
SILENT = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
FLAT = """
class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x.ravel())]) for x in found]
"""
CACHE = "response_cache { enable: true }"
ONE, ONE_OUT = {"IN": "TYPE_INT32 1"}, {"OUT": "TYPE_INT32 1"}
ON_CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"


def write_python(repository: Path, name: str, source: str, inputs: str, batch: int = 8, more: str = "") -> None:
    """A Python model of INT32 tensors with OUTPUT0."""
    output = tensor("OUTPUT0", "TYPE_INT32", "-1")
    config = f'backend: "python" max_batch_size: {batch} input [ {inputs} ] output [ {output} ] {ON_CPU} {more}'
    folder = write_model(repository, name, config)
    (folder / "1" / "model.py").write_text(HEAD + source)


def write_all(repository: Path) -> None:
    """Every model of these tests."""
    one = tensor("INPUT0", "TYPE_INT32", "-1")
    two = one + ", " + tensor("INPUT1", "TYPE_INT32", "-1", "optional: true")
    write_identity(repository, "same")
    write_identity(repository, "single", batch=0)
    write_identity(repository, "slow", delay_ms=150)
    write_python(repository, "adds", ADDS, two)
    write_python(repository, "flat", FLAT, one)
    write_ensemble(repository, "flat_alone", *chain("flat"))
    write_ensemble(repository, "flat_behind_single", *chain("same", "single", "flat"))
    write_python(repository, "silent", SILENT, one)
    write_python(repository, "counts", COUNTS, one, 0, "model_transaction_policy { decoupled: true }")
    pair = ", ".join(tensor(f"INPUT{i}", "TYPE_INT32", "16") for i in (0, 1))
    made = ", ".join(tensor(f"OUTPUT{i}", "TYPE_INT32", "16") for i in (0, 1))
    config = f'backend: "onnxruntime" max_batch_size: 8 input [ {pair} ] output [ {made} ] {ON_CPU}'
    write_model(repository, "sums", config, graph=SUM_AND_DIFFERENCE)
    simple = {"A": "TYPE_INT32 16", "B": "TYPE_INT32 16"}
    sums = [
        step("sums", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "s", "OUTPUT1": "d"}),
        step("sums", {"INPUT0": "s", "INPUT1": "d"}, {"OUTPUT0": "SUM", "OUTPUT1": "DIFF"}),
    ]
    write_ensemble(repository, "twice", *sums, inputs=simple, outputs={"SUM": "TYPE_INT32 16", "DIFF": "TYPE_INT32 16"})
    inner = step("twice", {"A": "A", "B": "B"}, {"SUM": "s", "DIFF": "d"})
    write_ensemble(
        repository, "nested", inner, sums[1], inputs=simple, outputs={"SUM": "TYPE_INT32 16", "DIFF": "TYPE_INT32 16"}
    )
    write_ensemble(repository, "chain", *chain("same", "adds", "slow", "adds"))
    write_ensemble(repository, "long", *chain(*["same"] * 400))
    write_ensemble(repository, "lonely", *chain("single", "same", "single"))
    write_ensemble(repository, "missing", *chain("same", "silent"))
    maybe = {"IN": "TYPE_INT32 -1", "MORE": "TYPE_INT32 -1 optional: true"}
    write_ensemble(
        repository, "maybe", step("adds", {"INPUT0": "IN", "INPUT1": "MORE"}, {"OUTPUT0": "OUT"}), inputs=maybe
    )
    write_ensemble(
        repository,
        "branches",
        step("adds", {"INPUT0": "IN", "when": "FAST"}, {"OUTPUT0": "OUT"}),
        step("slow", {"INPUT0": "IN", "unless": "FAST"}, {"OUTPUT0": "OUT"}),
        step("adds", {"INPUT0": "IN", "when": "FAST"}, {"OUTPUT0": "EXTRA"}),
        inputs={"IN": "TYPE_INT32 -1", "FAST": "TYPE_BOOL 1"},
        outputs={"OUT": "TYPE_INT32 -1", "EXTRA": "TYPE_INT32 -1"},
    )
    write_ensemble(repository, "stream", *chain("single", "counts", "adds"), batch=0)
    write_ensemble(repository, "slow_stream", *chain("counts", "slow"), batch=0, scheduling="max_inflight_requests: 1")
    write_ensemble(
        repository,
        "with_start",
        step("counts", {"INPUT0": "IN"}, {"OUTPUT0": "n"}),
        step("adds", {"INPUT0": "n", "INPUT1": "IN"}, {"OUTPUT0": "OUT"}),
        step("single", {"INPUT0": "IN"}, {"OUTPUT0": "FIRST"}),
        batch=0,
        outputs={"OUT": "TYPE_INT32 -1", "FIRST": "TYPE_INT32 -1"},
    )
    write_ensemble(repository, "cached", *chain("same", "adds"), extra=CACHE)
    sums = step("sequences", {"INPUT": "IN"}, {"OUTPUT": "OUT"})
    sequence_models.write(repository, "sequences", f"oldest {{ }} {sequence_models.controls()}")
    write_ensemble(repository, "cached_sequences", sums, inputs=ONE, outputs=ONE_OUT, batch=4, extra=CACHE)
    write_ensemble(repository, "paced", *chain("adds", "slow"), scheduling="max_inflight_requests: 1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("ensembles")
    write_all(folder / "models")
    options = ("--cache-config", "local,size=1048576")
    with serving(folder / "log", "--model-repository", folder / "models", *options) as found:
        yield found


def ask(server: RunningServer, library: Any, model: str, inputs: dict[str, np.ndarray[Any, Any]], **more: Any) -> Any:
    """One inference with a client of ``tritonclient``."""
    given = []
    for name, array in inputs.items():
        wire = "BOOL" if array.dtype == bool else "INT32"
        given.append(library.InferInput(name, array.shape, wire))
        given[-1].set_data_from_numpy(array)
    with library.InferenceServerClient(server.url if library is tritonclient.http else server.grpc_url) as client:
        return client.infer(model, given, **more)


LIBRARIES = pytest.mark.parametrize("library", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
A, B = np.arange(16, dtype=np.int32).reshape(1, 16), np.full((1, 16), 5, np.int32)


@LIBRARIES
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("model", ["twice", "nested"])
def test_tensors_go_from_step_to_step(server: RunningServer, library: Any, model: str, rows: int) -> None:
    a, b = np.repeat(A, rows, 0), np.repeat(B, rows, 0)
    found = ask(server, library, model, {"A": a, "B": b}, request_id="7")
    times = 1 if model == "twice" else 2
    assert np.array_equal(found.as_numpy("SUM"), 2 * a if times == 1 else 2 * a + 2 * b)
    assert np.array_equal(found.as_numpy("DIFF"), 2 * b if times == 1 else 2 * a - 2 * b)


def test_an_answer_names_the_ensemble_and_its_outputs_by_name(server: RunningServer) -> None:
    given = [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": A[0].tolist()} for n in "AB"]
    answer = server.infer("twice", {"id": "7", "inputs": given}).json()
    assert [answer["id"], answer["model_name"], answer["model_version"]] == ["7", "twice", "1"]
    assert [output["name"] for output in answer["outputs"]] == ["DIFF", "SUM"]
    assert "parameters" not in answer


def test_the_log_says_that_an_ensemble_is_loaded(server: RunningServer) -> None:
    line = next(line for line in server.log.splitlines() if "successfully loaded 'chain' version 1" in line)
    assert "version 1: ensemble, 0 instance(s)" in line


def test_steps_that_no_requested_output_needs_do_not_run(server: RunningServer) -> None:
    before = server.statistics("counts")["inference_count"]
    found = server.infer("with_start", {**numbers([3]), "outputs": [{"name": "FIRST"}]})
    # Over HTTP a decoupled model is refused, whatever is asked for.
    assert found.status == 501
    events = _stream(server, "with_start", 3, outputs=["FIRST"])
    assert [e["FIRST"] for e in events] == [[3]]
    assert server.statistics("counts")["inference_count"] == before


@LIBRARIES
def test_models_with_and_without_batches_go_together(server: RunningServer, library: Any) -> None:
    x = np.array([[1, 2, 3]], np.int32)
    assert np.array_equal(ask(server, library, "lonely", {"IN": x}).as_numpy("OUT"), x)
    with pytest.raises(
        Exception, match=r"in ensemble 'lonely', step 0 \(model 'single'\).*Expected \[-1\], got \[2,3\]"
    ):
        ask(server, library, "lonely", {"IN": np.repeat(x, 2, 0)})


@LIBRARIES
@pytest.mark.parametrize("model", ["flat_alone", "flat_behind_single"])
def test_a_model_that_batches_chooses_the_rank_of_its_outputs(server: RunningServer, library: Any, model: str) -> None:
    x = np.array([[3, 5]], np.int32)
    assert ask(server, library, model, {"IN": x}).as_numpy("OUT").tolist() == [3, 5]


@LIBRARIES
def test_an_optional_input_may_be_left_out(server: RunningServer, library: Any) -> None:
    x = np.array([[1, 2, 3]], np.int32)
    assert ask(server, library, "maybe", {"IN": x}).as_numpy("OUT").tolist() == [[2, 3, 4]]
    assert ask(server, library, "maybe", {"IN": x, "MORE": 10 * x}).as_numpy("OUT").tolist() == [[11, 22, 33]]


def test_four_hundred_steps_on_the_loop_need_no_deep_stack(server: RunningServer) -> None:
    assert server.infer("long", {"inputs": [given_input([[4, 5]])]}).json()["outputs"][0]["data"] == [4, 5]


def given_input(data: list[list[int]], name: str = "IN") -> dict[str, Any]:
    return {"name": name, "datatype": "INT32", "shape": list(np.shape(data)), "data": data}


def test_an_output_that_a_model_does_not_give_is_an_error(server: RunningServer) -> None:
    answer = server.infer("missing", {"inputs": [given_input([[1]])], "id": "x"})
    assert answer.status == 500
    assert answer.error.startswith(
        "in ensemble 'missing', [request id: x] unexpected deadlock, at least one output is not set while no more "
        "ensemble steps can be made: 'OUT'"
    )


# Conditional steps


@LIBRARIES
def test_a_step_runs_only_where_its_condition_holds(server: RunningServer, library: Any) -> None:
    x = np.array([[1, 2]], np.int32)
    fast = ask(server, library, "branches", {"IN": x, "FAST": np.array([[True]])})
    assert fast.as_numpy("OUT").tolist() == [[2, 3]]
    assert fast.as_numpy("EXTRA").tolist() == [[2, 3]]
    slow = ask(server, library, "branches", {"IN": x, "FAST": np.array([[False]])})
    assert slow.as_numpy("OUT").tolist() == [[1, 2]]
    # No step has written it, so the answer does not have it.
    assert slow.as_numpy("EXTRA") is None


@LIBRARIES
def test_rows_that_differ_in_a_condition_are_refused(server: RunningServer, library: Any) -> None:
    x = np.array([[1], [2]], np.int32)
    with pytest.raises(Exception, match=r"all true or all false.*send the rows that differ as requests of their own"):
        ask(server, library, "branches", {"IN": x, "FAST": np.array([[True], [False]])})


# Decoupled steps


def _stream(server: RunningServer, model: str, count: int, outputs: list[str] | None = None) -> list[dict[str, Any]]:
    """All responses to one request on a gRPC stream, and that the last of them is final."""
    found: queue.Queue[Any] = queue.Queue()
    given = tritonclient.grpc.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.array([count], np.int32))
    wanted = [tritonclient.grpc.InferRequestedOutput(name) for name in outputs] if outputs else None
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=lambda result, error: found.put((result, error)))
        client.async_stream_infer(model, [given], outputs=wanted, enable_empty_final_response=True)
        events = []
        while True:
            result, error = found.get(timeout=20)
            assert error is None, error
            response = result.get_response()
            if response.outputs:
                events.append({output.name: result.as_numpy(output.name).tolist() for output in response.outputs})
            if response.parameters["triton_final_response"].bool_param:
                return events


def test_an_ensemble_with_a_decoupled_step_is_decoupled(server: RunningServer) -> None:
    config = server.get("/v2/models/stream/config").json()
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert server.infer("stream", numbers([3])).status == 501
    # Said of the others as well, as by the reference.
    assert server.get("/v2/models/chain/config").json()["model_transaction_policy"] == {"decoupled": False}


@pytest.mark.parametrize("count", [0, 1, 50])
def test_each_response_goes_through_the_steps_behind_it_in_order(server: RunningServer, count: int) -> None:
    assert _stream(server, "stream", count) == [{"OUT": [n + 1]} for n in range(count)]


def test_responses_meet_what_the_request_brought(server: RunningServer) -> None:
    assert _stream(server, "with_start", 4) == [{"OUT": [n + 4], "FIRST": [4]} for n in range(4)]


@pytest.mark.slow
def test_responses_that_come_too_fast_end_their_request_alone(server: RunningServer) -> None:
    found: queue.Queue[Any] = queue.Queue()
    given = tritonclient.grpc.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.array([6000], np.int32))
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=lambda result, error: found.put((result, error)))
        client.async_stream_infer("slow_stream", [given])
        errors = []
        while not errors:
            _, error = found.get(timeout=20)
            errors += [str(error)] if error is not None else []
    assert "step 0 (model 'counts') sends responses faster than the steps behind it take them: 4096" in errors[0]
    assert _stream(server, "stream", 2) == [{"OUT": [1]}, {"OUT": [2]}]


def test_events_over_http(server: RunningServer) -> None:
    answer = server.post("/v2/models/stream/generate_stream", {"IN": [3]})
    events = [json.loads(line[6:])["OUT"] for line in answer.body.decode().split("\n\n") if line]
    assert events == [1, 2, 3]


# The page


@pytest.mark.slow
def test_the_example_of_the_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ensembles.md").read_text(encoding="utf-8")
    serve, ask_it = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-euc", serve.replace("naiad serve", "echo")], cwd=tmp_path, check=True)
    body = ask_it.partition("-d '")[2].rpartition("'")[0]
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        answer = server.infer("pipeline", json.loads(body)).json()
        assert answer["outputs"] == [{"name": "RESULT", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]
        given = json.loads(body)["inputs"]
        for inputs, ran in ((given, {"slow": 2, "tidy": 0}), (given[:1], {"slow": 2, "tidy": 1})):
            assert server.infer("pipeline", {"inputs": inputs}).status == 200
            assert {name: server.statistics(name)["inference_count"] for name in ran} == ran


# Figures


def test_statistics_of_an_ensemble_and_of_its_members(server: RunningServer) -> None:
    before = {name: server.statistics(name)["inference_stats"] for name in ("chain", "slow")}
    assert server.infer("chain", {"inputs": [given_input([[1], [2]])]}).status == 200
    ensemble = server.statistics("chain")
    assert ensemble["inference_count"] == 2
    assert ensemble["execution_count"] == 1
    assert [b["batch_size"] for b in ensemble["batch_stats"]] == [2]
    stats, member = ensemble["inference_stats"], server.statistics("slow")["inference_stats"]
    assert stats["success"]["count"] - before["chain"]["success"]["count"] == 1
    ran_ns = member["compute_infer"]["ns"] - before["slow"]["compute_infer"]["ns"]
    assert ran_ns >= 150e6
    assert stats["compute_infer"]["ns"] >= ran_ns
    # What steps wait for is with their models: the parts do not overlap.
    assert stats["success"]["ns"] >= stats["queue"]["ns"] + stats["compute_infer"]["ns"]


def test_answers_of_an_ensemble_are_cached(server: RunningServer) -> None:
    ran = server.statistics("adds")["inference_count"]
    for _ in range(3):
        assert server.infer("cached", {"inputs": [given_input([[41]])]}).json()["outputs"][0]["data"] == [42]
    assert server.statistics("adds")["inference_count"] == ran + 1
    stats = server.statistics("cached")["inference_stats"]
    assert [stats["cache_hit"]["count"], stats["cache_miss"]["count"]] == [2, 1]


def test_requests_of_a_sequence_are_not_answered_from_the_cache_of_an_ensemble(server: RunningServer) -> None:
    for _ in range(2):
        totals = []
        for number in range(3):
            asked = {"inputs": [given_input([[4]])], "parameters": {"sequence_id": 8, "sequence_start": number == 0}}
            totals.append(server.infer("cached_sequences", asked).json()["outputs"][0]["data"][0])
        assert totals == [4, 8, 12]


def test_metrics_have_a_line_for_an_ensemble(server: RunningServer) -> None:
    server.infer("twice", {"inputs": [given_input(A.tolist(), "A"), given_input(B.tolist(), "B")]})
    page = server.metrics_page()
    lines = [line for line in page.splitlines() if 'model="twice"' in line and "nv_inference_count" in line]
    assert len(lines) == 1
    assert float(lines[0].split()[-1]) > 0


def _most_waiting(server: RunningServer, model: str) -> float:
    """How many requests waited for "slow" at most while six went through an ensemble."""
    given = tritonclient.http.InferInput("IN", [1, 1], "INT32")
    given.set_data_from_numpy(np.array([[1]], np.int32))
    most = 0.0
    with tritonclient.http.InferenceServerClient(server.url, concurrency=6) as client:
        before = server.statistics(model)["inference_stats"]["success"]["count"]
        waiting = [client.async_infer(model, [given]) for _ in range(6)]

        def all_answered() -> bool:
            nonlocal most
            page = server.metrics_page()
            name = 'nv_inference_pending_request_count{model="slow",'
            most = max(most, *(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name)))
            return bool(server.statistics(model)["inference_stats"]["success"]["count"] == before + 6)

        wait_until(all_answered, 20, "all are answered")
        assert all(w.get_result().as_numpy("OUT") is not None for w in waiting)
    return most


@pytest.mark.slow
def test_no_more_requests_of_a_step_run_than_it_may(server: RunningServer) -> None:
    assert _most_waiting(server, "chain") > 0
    assert _most_waiting(server, "paced") == 0
