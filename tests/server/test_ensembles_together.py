"""Ensembles together with what else a server does: calls of Python models, namespaces, routes, spans, rate limits,
priorities, ragged and padded batches, the cache."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, serving, wait_until
from server.test_batching_together import FLAT_GRAPH, GRAPH, PADDED, RAGGED, SCATTERED
from server.test_ensembles import ADDS, ON_CPU, SILENT, given_input, write_python
from support.config_texts import parameter
from support.otlp_collector import collecting
from support.python_models import HEAD, write_python_model
from support.served_ensembles import chain, step, write_ensemble, write_identity
from support.served_models import identity, tensor, write_model
from support.versioned_models import ALL, SCALES, write_onnx
from support.versioned_models import write_python as write_scales

ROW = {"inputs": [given_input([[1]])]}
FLOATS = ({"IN": "TYPE_FP32 -1"}, {"OUT": "TYPE_FP32 -1"})
X_TO_Y = ({"X": "IN"}, {"Y": "OUT"})
# Asks the ensemble "called" in one of two ways, or the decoupled one "counted".
ASKS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            name = "counted" if x.flat[0] > 100 else "called"
            given = pb_utils.Tensor("IN", x.reshape(-1)[:1] - 100 if name == "counted" else x)
            call = pb_utils.InferenceRequest(
                model_name=name, requested_output_names=["OUT"], inputs=[given], request_id="inside")
            if name == "counted":
                found = [r for r in call.exec(decoupled=True) if len(r.output_tensors())]
                y = np.array([[pb_utils.get_output_tensor_by_name(r, "OUT").as_numpy().item() for r in found]])
                y = y.astype(np.int32)
            else:
                response = call.exec()
                if response.has_error():
                    answers.append(pb_utils.InferenceResponse(error=response.error()))
                    continue
                y = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", y)]))
        return answers
"""
# Waits for a file.
GATED = """
class TritonPythonModel:
    def execute(self, requests):
        folder = os.path.dirname(__file__)
        open(os.path.join(folder, "begun"), "w").close()
        end = time.time() + 20
        while time.time() < end and not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.001)
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in tensors]
"""
# Ends once there is a file, or the server does not wait any longer.
ENDS = """
    def finalize(self):
        end = time.time() + 20
        file = os.path.join(os.path.dirname(os.path.dirname(__file__)), "may_end")
        while time.time() < end and not os.path.exists(file):
            time.sleep(0.001)
"""
# Waits for as many milliseconds as its input says.
SLEEPS = ADDS.replace("y = x + 1 if", "time.sleep(x.max() / 1000); y = x + 1 if")


def ints(server: RunningServer, model: str, data: list[list[int]]) -> Any:
    """The answer's data to a request with one input, IN; an error's text."""
    answer = server.infer(model, {"inputs": [given_input(data)]})
    return answer.json()["outputs"][0]["data"] if answer.status == 200 else answer.error


# Calls


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("together")
    models = folder / "models"
    one = tensor("INPUT0", "TYPE_INT32", "-1")
    two = one + ", " + tensor("INPUT1", "TYPE_INT32", "-1", "optional: true")
    write_identity(models, "same")
    write_identity(models, "slow", delay_ms=400)
    write_python(models, "adds", ADDS, two)
    write_python(models, "asks", ASKS, one)
    write_python(models, "silent", SILENT, one)
    write_python(models, "sleeps", SLEEPS, two, more="response_cache { enable: true }")
    decoupled = "model_transaction_policy { decoupled: true }"
    repeated = f"input [ {tensor('IN', 'TYPE_INT32', '1')} ] output [ {tensor('OUT', 'TYPE_INT32', '1')} ]"
    write_model(models, "square", f'backend: "square" {repeated} {ON_CPU} {decoupled}')
    write_ensemble(models, "called", *chain("same", "adds"))
    counted = [step("square", {"IN": "IN"}, {"OUT": "n"}), step("adds", {"INPUT0": "n"}, {"OUTPUT0": "OUT"})]
    write_ensemble(models, "counted", *counted, inputs={"IN": "TYPE_INT32 1"}, outputs={"OUT": "TYPE_INT32 1"}, batch=0)
    write_ensemble(models, "calls", *chain("same", "asks", "adds"))
    write_ensemble(models, "fails", *chain("same", "silent"))
    write_ensemble(models, "hits", *chain("sleeps", "slow"), scheduling="max_inflight_requests: 1")
    queue = "dynamic_batching { priority_levels: 2 default_priority_level: 2 }"
    write_python(models, "ranks", SLEEPS, two, more=queue)
    write_ensemble(models, "ranked", *chain("same", "ranks"))
    write_model(models, "ragged", RAGGED + SCATTERED, graph=FLAT_GRAPH)
    write_model(models, "padded", PADDED + "dynamic_batching { max_queue_delay_microseconds: 2000 }\n", graph=GRAPH)
    for name in ("ragged", "padded"):
        steps = [step(name, {"X": "IN"}, {"Y": "t"}), step(name, {"X": "t"}, {"Y": "OUT"})]
        write_ensemble(models, f"{name}_twice", *steps, inputs=FLOATS[0], outputs=FLOATS[1])
    options = ("--cache-config", "local,size=1048576", "--allow-client-shm=true")
    with serving(folder / "log", "--model-repository", models, *options) as found:
        yield found


@pytest.mark.slow
def test_a_python_model_calls_an_ensemble_from_inside_another(server: RunningServer) -> None:
    assert ints(server, "calls", [[1, 2, 3]]) == [3, 4, 5]
    # A decoupled one: three responses of 3, with 1 added to each by two steps.
    assert ints(server, "calls", [[103]]) == [5, 5, 5]
    assert server.statistics("called")["inference_stats"]["success"]["count"] >= 1


def test_what_a_called_ensemble_fails_with_reaches_the_caller(server: RunningServer) -> None:
    error = ints(server, "calls", [[100]] * 9)
    assert "max_batch_size" in error or "batch" in error
    assert ints(server, "calls", [[1]]) == [3]


# Batches


@pytest.mark.parametrize("model", ["ragged", "padded"])
def test_steps_with_rows_of_several_lengths(server: RunningServer, model: str) -> None:
    def call(length: int) -> None:
        x = np.random.default_rng(length).random((1, length), np.float32)
        given = tritonclient.grpc.InferInput("IN", x.shape, "FP32")
        given.set_data_from_numpy(x)
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            found = client.infer(f"{model}_twice", [given]).as_numpy("OUT")
        assert np.array_equal(found, 2 * (x + x) if model == "ragged" else x + 1 + 1)

    before = server.statistics(model)
    with ThreadPoolExecutor(8) as callers:
        assert len(list(callers.map(call, [3, 1, 17, 4] * 10))) == 40
    after = server.statistics(model)
    assert after["inference_count"] - before["inference_count"] == 80


def test_a_region_reaches_a_step_with_ragged_rows(server: RunningServer) -> None:
    import tritonclient.utils.shared_memory as shm

    x = np.arange(30_000, dtype=np.float32).reshape(1, -1)
    key = f"/naiad_ragged_{os.getpid()}"
    handle = shm.create_shared_memory_region("both", key, 2 * x.nbytes)
    try:
        shm.set_shared_memory_region(handle, [x])
        with tritonclient.http.InferenceServerClient(server.url) as client:
            client.register_system_shared_memory("both", key, 2 * x.nbytes)
            given = tritonclient.http.InferInput("IN", x.shape, "FP32")
            given.set_shared_memory("both", x.nbytes)
            made = tritonclient.http.InferRequestedOutput("OUT")
            made.set_shared_memory("both", x.nbytes, x.nbytes)
            client.infer("ragged_twice", [given], outputs=[made])
            assert np.array_equal(shm.get_contents_as_numpy(handle, np.float32, x.shape, x.nbytes), 4 * x)
            client.unregister_system_shared_memory("both")
    finally:
        shm.destroy_shared_memory_region(handle)


# Queues


class Calls:
    """Requests of one client, and the order in which they are answered."""

    def __init__(self, server: RunningServer) -> None:
        self.client = tritonclient.grpc.InferenceServerClient(server.grpc_url)
        self.answered: list[tuple[int, Any]] = []

    def ask(self, model: str, value: int, **more: Any) -> None:
        given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
        given.set_data_from_numpy(np.array([[value]], np.int32))

        def told(result: Any, error: Any) -> None:
            self.answered.append((value, error if result is None else result.as_numpy("OUT").item()))

        self.client.async_infer(model, [given], told, **more)

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.answered) == count, 20, f"{count} requests are answered")


@pytest.mark.slow
def test_the_priority_of_a_request_is_that_of_its_steps(server: RunningServer) -> None:
    calls = Calls(server)
    with calls.client:
        ran = server.statistics("same")["inference_count"]
        calls.ask("ranked", 2000)
        wait_until(lambda: server.statistics("same")["inference_count"] > ran, 10, "the first step has run")
        server.wait_pending("ranks", 0)
        for value in (11, 12, 13):
            calls.ask("ranked", value)
        server.wait_pending("ranks", 3)
        calls.ask("ranked", 1, priority=1)
        calls.wait(5)
    order = [value for value, _ in calls.answered]
    assert order.index(1) < min(order.index(value) for value in (11, 12, 13))
    assert all(answer == value + 1 for value, answer in calls.answered)


@pytest.mark.slow
def test_a_step_that_is_answered_from_the_cache_while_others_wait_for_their_turn(server: RunningServer) -> None:
    """Its answer comes while the next steps are let in, and lets a further step wait."""
    for _ in range(2):
        assert ints(server, "hits", [[1]]) == [2]
    calls = Calls(server)
    with calls.client:
        # One runs its second step, one its first, and one waits for that, whose answer is kept.
        for value in (2, 200, 1, 201, 1, 1):
            calls.ask("hits", value)
        calls.wait(6)
    assert all(answer == value + 1 for value, answer in calls.answered)
    assert ints(server, "hits", [[1]]) == [2]


@pytest.mark.slow
def test_steps_share_the_resources_of_all_models(tmp_path: Path) -> None:
    models = tmp_path / "models"
    source = f"""
import fcntl
class TritonPythonModel:
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "INPUT0").as_numpy()
        # Whoever has the resource has the file for itself.
        with open("{tmp_path}/alone", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError("not alone"))]
            time.sleep(0.005)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x + 1)])]
"""
    given, made = tensor("INPUT0", "TYPE_INT32", "-1"), tensor("OUTPUT0", "TYPE_INT32", "-1")
    for name in ("one", "other"):
        limits = 'rate_limiter { resources [ { name: "R" count: 1 } ] }'
        group = f"instance_group [ {{ kind: KIND_CPU count: 2 {limits} }} ]"
        config = f'backend: "python" max_batch_size: 8 input [ {given} ] output [ {made} ] {group}'
        (write_model(models, name, config) / "1" / "model.py").write_text(HEAD + source)
    write_ensemble(models, "both", *chain("one", "other", "one"))
    write_ensemble(
        models,
        "apart",
        step("one", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"}),
        step("other", {"INPUT0": "IN"}, {"OUTPUT0": "MORE"}),
        outputs={"OUT": "TYPE_INT32 -1", "MORE": "TYPE_INT32 -1"},
    )
    with serving(tmp_path / "log", "--model-repository", models, "--rate-limit=execution_count") as server:
        with ThreadPoolExecutor(6) as callers:
            found = list(callers.map(lambda n: ints(server, ("both", "apart")[n % 2], [[n]]), range(30)))
        assert found == [[n + (3, 1)[n % 2]] for n in range(30)]


# Names and versions


@pytest.mark.slow
def test_members_of_the_own_namespace_come_first(tmp_path: Path) -> None:
    for repository, dims in (("first", "3"), ("second", "4")):
        write_model(tmp_path / repository, "same", identity(dims=dims, max_batch_size=8))
        shape = {"IN": f"TYPE_INT32 {dims}"}, {"OUT": f"TYPE_INT32 {dims}"}
        write_ensemble(tmp_path / repository, "both", *chain("same", "same"), inputs=shape[0], outputs=shape[1])
        if repository == "second":
            write_ensemble(
                tmp_path / repository, "outer", step("both", {"IN": "IN"}, {"OUT": "OUT"}), inputs=shape[0],
                outputs=shape[1],
            )  # fmt: skip
    first, second = tmp_path / "first", tmp_path / "second"
    options = ("--model-repository", first, "--model-repository", second, "--model-namespacing=true")
    with serving(tmp_path / "log", *options) as server:
        assert ints(server, "outer", [[1, 2, 3, 4]]) == [1, 2, 3, 4]
        rows = {(row["name"], Path(row["namespace"]).name): row["state"] for row in server.index()}
        assert set(rows.values()) == {"READY"} and len(rows) == 5
        given = tritonclient.grpc.InferInput("IN", [1, 3], "INT32")
        given.set_data_from_numpy(np.array([[1, 2, 3]], np.int32))
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            assert client.infer(f"{first}/both", [given]).as_numpy("OUT").tolist() == [[1, 2, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("load", [(), ("--load-on-demand-secs", "20")], ids=["explicit", "on_demand"])
def test_a_step_follows_the_routes_of_its_model(tmp_path: Path, load: tuple[str, ...]) -> None:
    models = tmp_path / "models"
    write_onnx(models, "scales", 3)
    pairs = {"IN": "TYPE_FP32 2"}, {"OUT": "TYPE_FP32 2"}
    steps = [step("scales", {"X": "IN"}, {"Y": "t"}), step("scales", {"X": "t"}, {"Y": "OUT"}, version=2)]
    write_ensemble(models, "twice", *steps, inputs=pairs[0], outputs=pairs[1], batch=4)
    options = ("--model-control-mode", "explicit", "--load-model", "twice", *load)
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 1.0]}]}

    with serving(tmp_path / "log", "--model-repository", models, *options) as server:

        def factor() -> float:
            answer = server.infer("twice", body)
            assert answer.status == 200, answer.body
            return float(answer.json()["outputs"][0]["data"][0])

        def route(**routes: Any) -> None:
            assert server.post("/v2/models/scales/routes", routes).status == 200

        assert factor() == 6
        route(split={"1": 1})
        assert factor() == 2
        route(split={"1": 1, "3": 1})
        assert Counter(factor() for _ in range(20)) == {2: 10, 6: 10}
        # Routes that change all the time cost no request.
        stop = threading.Event()

        def ask_on() -> set[float]:
            found = set()
            while not stop.is_set():
                found.add(factor())
            return found

        with ThreadPoolExecutor(3) as callers:
            asked = [callers.submit(ask_on) for _ in range(3)]
            for turn in range(30):
                route(split={str(turn % 3 + 1): 1})
            stop.set()
            assert set().union(*(found.result() for found in asked)) <= {2.0, 4.0, 6.0}
        route(split=None)
        assert factor() == 6


@pytest.mark.slow
def test_a_step_stays_with_the_versions_of_a_route_that_its_request_began_with(tmp_path: Path) -> None:
    """They are loaded anew while the step before is at work, and would take long to end."""
    models = tmp_path / "models"
    gate = write_python_model(models, "gated", GATED) / "1"
    folder = write_scales(models, "scales", 2, SCALES + ENDS, "max_batch_size: 4" + parameter("route.split", "1:1,2:1"))
    pairs = {"IN": "TYPE_FP32 2"}, {"OUT": "TYPE_FP32 2"}
    steps = [step("gated", {"X": "IN"}, {"Y": "t"}), step("scales", {"X": "t"}, {"Y": "OUT"})]
    write_ensemble(models, "both", *steps, inputs=pairs[0], outputs=pairs[1], batch=4)
    options = ("--model-control-mode", "explicit", "--load-model", "both")
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 1.0]}]}
    with serving(tmp_path / "log", "--model-repository", models, *options) as server, ThreadPoolExecutor(1) as callers:
        asked = callers.submit(server.infer, "both", body)
        wait_until((gate / "begun").exists, 10, "the first step is at work")
        config = folder / "config.pbtxt"
        config.write_text(config.read_text() + 'metric_tags { key: "a" value: "b" }')
        assert server.post("/v2/repository/models/scales/load", {}).status == 200
        # Answered by the versions of now.
        direct = {"inputs": [body["inputs"][0] | {"name": "X"}]}
        assert server.infer("scales", direct).status == 200
        (gate / "go").touch()
        answer = asked.result(20)
        assert answer.status == 200, answer.body
        assert answer.json()["outputs"][0]["data"][0] in (1.0, 2.0)
        (folder / "may_end").touch()
        for version in (1, 2):
            server.wait_for(f"successfully unloaded 'scales' version {version}")


@pytest.mark.slow
def test_an_ensemble_waits_for_routes_that_lead_somewhere(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_onnx(models, "scales", 3)
    once = step("scales", {"X": "IN"}, {"Y": "OUT"})
    write_ensemble(models, "once", once, inputs={"IN": "TYPE_FP32 2"}, outputs={"OUT": "TYPE_FP32 2"}, batch=4)
    options = ("--model-control-mode", "explicit", "--load-model", "scales")
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 1.0]}]}
    with serving(tmp_path / "log", "--model-repository", models, *options) as server:
        assert server.post("/v2/models/scales/routes", {"split": {"3": 1}}).status == 200
        config = models / "scales" / "config.pbtxt"
        config.write_text(config.read_text().replace(ALL, "version_policy { specific { versions: [ 1, 2 ] } }"))
        assert server.post("/v2/repository/models/scales/load", {}).status == 200
        refused = server.post("/v2/repository/models/once/load", {})
        assert (refused.status, "3" in refused.error) == (400, True), refused.error
        assert server.post("/v2/models/scales/routes", {"split": {"2": 1}}).status == 200
        wait_until(lambda: server.infer("once", body).status == 200, 20, "the ensemble is loaded by itself")
        assert server.infer("once", body).json()["outputs"][0]["data"] == [2.0, 2.0]


# Spans


@pytest.mark.slow
def test_steps_are_spans_inside_that_of_their_request(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_identity(models, "same")
    write_identity(models, "batches", extra="dynamic_batching { }")
    write_ensemble(models, "pair", *chain("same", "batches"))
    write_ensemble(models, "outer", step("pair", {"IN": "IN"}, {"OUT": "OUT"}))
    with collecting() as collector:
        settings = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1", f"opentelemetry,url={collector.url}")
        options = [f"--trace-config={setting}" for setting in settings]
        with serving(tmp_path / "log", "--model-repository", models, *options) as server:
            assert server.infer("outer", ROW).status == 200
        assert not collector.problems
    spans = {span.span_id: span for span in collector.spans}
    found = {span.name: getattr(spans.get(span.parent_span_id), "name", None) for span in spans.values()}
    assert {name: found[name] for name in ("outer", "pair", "same", "batches")} == {
        "outer": "InferRequest",
        "pair": "outer",
        "same": "pair",
        "batches": "pair",
    }
    assert len({span.trace_id for span in spans.values()}) == 1
    for span in spans.values():
        around = spans.get(span.parent_span_id, span)
        assert around.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= around.end_time_unix_nano


@pytest.mark.slow
@pytest.mark.parametrize("batch", [0, 8])
def test_an_ensemble_reshapes_its_own_tensors(tmp_path: Path, batch: int) -> None:
    """Its steps see the shapes of ``reshape``, its callers those of ``dims``; so does an ensemble around it."""
    models = tmp_path / "models"
    write_identity(models, "flat", batch)
    one = {"IN": "TYPE_INT32 2,3 reshape: { shape: [ 6 ] }"}, {"OUT": "TYPE_INT32 3,2 reshape: { shape: [ 6 ] }"}
    write_ensemble(models, "shaped", *chain("flat"), inputs=one[0], outputs=one[1], batch=batch)
    around = [step("shaped", {"IN": "IN"}, {"OUT": "OUT"})]
    plain = {"IN": "TYPE_INT32 2,3"}, {"OUT": "TYPE_INT32 3,2"}
    write_ensemble(models, "around", *around, inputs=plain[0], outputs=plain[1], batch=batch)
    wrong = {"IN": "TYPE_INT32 6 reshape: { shape: [ 2, 3 ] }"}
    write_ensemble(models, "unfit", *chain("flat"), inputs=wrong, batch=batch)
    with serving(tmp_path / "log", "--model-repository", models, "--exit-on-error=false") as server:
        lead = [3] if batch else []
        data = list(range(18 if batch else 6))
        given = {"name": "IN", "datatype": "INT32", "shape": [*lead, 2, 3], "data": data}
        for model in ("shaped", "around"):
            answer = server.infer(model, {"inputs": [given]}).json()
            assert answer["outputs"][0]["shape"] == [*lead, 3, 2]
            assert answer["outputs"][0]["data"] == data
        refused = server.infer("shaped", {"inputs": [given | {"shape": [*lead, 6]}]})
        assert refused.status == 400
        index = {entry["name"]: entry for entry in server.index()}
        assert "inconsistent shape" in index["unfit"]["reason"]


@pytest.mark.slow
def test_the_bytes_of_a_batch_are_bounded_for_texts_that_a_step_gets(tmp_path: Path) -> None:
    models = tmp_path / "models"
    text = f"input [ {tensor('INPUT0', 'TYPE_STRING', '1')} ] output [ {tensor('OUTPUT0', 'TYPE_STRING', '1')} ]"
    bounds = 'parameters { key: "max_batch_bytes" value { string_value: "100000" } }'
    batching = "dynamic_batching { max_queue_delay_microseconds: 300000 }"
    write_model(models, "texts", f'backend: "identity" max_batch_size: 4 {text} {ON_CPU} {batching} {bounds}')
    kinds = {"IN": "TYPE_STRING 1"}, {"OUT": "TYPE_STRING 1"}
    write_ensemble(models, "around", *chain("texts"), inputs=kinds[0], outputs=kinds[1], batch=4)
    with serving(tmp_path / "log", "--model-repository", models) as server, ThreadPoolExecutor(4) as callers:
        large = {"name": "IN", "datatype": "BYTES", "shape": [1, 1], "data": ["x" * 60_000]}
        answers = list(callers.map(lambda n: server.infer("around", {"inputs": [large]}), range(4)))
        assert [answer.status for answer in answers] == [200] * 4
        assert {entry["batch_size"] for entry in server.statistics("texts")["batch_stats"]} == {1}
