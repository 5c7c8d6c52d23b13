"""Traces of requests to a real server: which are written, where, in what form, and how the settings change it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, run_to_end, serving, wait_until
from support.python_models import DOUBLES, REPEATS, write_python_model
from support.served_ensembles import chain, write_ensemble, write_identity
from support.served_models import LOOK_UP, identity, numbers, write_model

STAGES = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
STAGES += ["INFER_RESPONSE_COMPLETE", "REQUEST_END"]
OF_HTTP = ["HTTP_RECV_START", "HTTP_RECV_END", *STAGES, "HTTP_SEND_START", "HTTP_SEND_END"]
OF_GRPC = ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", *STAGES, "GRPC_SEND_START", "GRPC_SEND_END"]
FAILED = [s for s in OF_HTTP if s not in ("COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE")]


def traces(path: Path) -> list[dict[str, Any]]:
    """The traces of a file, each with the names of its timestamps, which must ascend."""
    found: dict[int, dict[str, Any]] = {}
    for item in json.loads(path.read_text()):
        found.setdefault(item["id"], {}).update(item)
    for trace in found.values():
        times = [t["ns"] for t in trace["timestamps"]]
        assert times == sorted(times), trace
        trace["timestamps"] = [t["name"] for t in trace["timestamps"]]
    return list(found.values())


def tensors(path: Path) -> list[tuple[str, str, str, str, str]]:
    """Activity, name, data, shape and type of each tensor of a file."""
    items = [item for item in json.loads(path.read_text()) if "tensor" in item]
    return [(i["activity"], *(i["tensor"][key] for key in ("name", "data", "shape", "dtype"))) for i in items]


def is_written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "inline", identity())
    write_model(folder, "batched", identity(max_batch_size=4, extra="dynamic_batching { }"))
    write_model(folder, "look_up", "max_batch_size: 4", graph=LOOK_UP)
    return folder


@pytest.fixture
def traced(tmp_path: Path, models: Path) -> Iterator[RunningServer]:
    """A server that could trace, and traces nothing yet."""
    with serving(tmp_path / "log", models, f"--trace-config=triton,file={tmp_path / 'trace'}") as running:
        yield running


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[RunningServer]:
    """Such a server, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("unchanged")
    with serving(folder / "log", models, f"--trace-config=triton,file={folder / 'trace'}") as running:
        yield running


def set_trace(server: RunningServer, model: str = "", **settings: object) -> dict[str, Any]:
    answer = server.post(f"/v2/models/{model}/trace/setting" if model else "/v2/trace/setting", settings)
    assert answer.status == 200, answer.body
    return dict(answer.json())


def ids(file: Path) -> list[int]:
    """Of the traces in a file; none while it is not written."""
    return [trace["id"] for trace in traces(file)] if is_written(file) else []


def infer(server: RunningServer, model: str = "inline", request_id: str = "") -> None:
    shape = [1, 1] if model == "batched" else [1]
    request = numbers([1], shape, **({"id": request_id} if request_id else {}))
    assert server.infer(model, request).status == 200


def test_traces_of_the_command_line_are_whole_when_the_server_ends(tmp_path: Path, models: Path) -> None:
    settings = (f"triton,file={tmp_path / 'trace'}", "level=TIMESTAMPS", "rate=2", "mode=triton")
    with serving(tmp_path / "log", models, *(f"--trace-config={s}" for s in settings)) as server:
        for number in range(1, 6):
            infer(server, request_id=f"r{number}")
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            tensor = tritonclient.grpc.InferInput("INPUT0", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.ones((1, 1), np.int32))
            client.infer("batched", [tensor])
        body = {"inputs": [{"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [9]}]}
        assert server.infer("look_up", body).status == 500
        assert server.infer("look_up", body).status == 500
    found = traces(tmp_path / "trace")
    assert [t["id"] for t in found] == [1, 2, 3, 4]
    assert [t["model_name"] for t in found] == ["inline", "inline", "batched", "look_up"]
    assert [t.get("request_id") for t in found] == ["r2", "r4", None, None]
    assert [t["model_version"] for t in found] == [1] * 4
    assert [t["timestamps"] for t in found] == [OF_HTTP, OF_HTTP, OF_GRPC, FAILED]


@pytest.mark.slow
def test_numbered_files_are_complete_while_the_server_runs(traced: RunningServer, tmp_path: Path) -> None:
    set_trace(traced, trace_level=["TIMESTAMPS"], trace_rate="1", log_frequency="2")
    for _ in range(5):
        infer(traced, "batched")
    wait_until(lambda: is_written(tmp_path / "trace.2"), 10, "the third file")
    assert [len(traces(tmp_path / f"trace.{n}")) for n in range(3)] == [2, 2, 1]
    assert not (tmp_path / "trace").exists()


@pytest.mark.slow
def test_a_count_runs_down_and_can_be_set_again(traced: RunningServer, tmp_path: Path) -> None:
    set_trace(traced, trace_level=["TIMESTAMPS"], trace_rate="1", trace_count="3")
    for left in (2, 1, 0, 0):
        infer(traced)
        assert traced.get("/v2/trace/setting").json()["trace_count"] == str(left)
    # It may have been written before the last of them.
    wait_until(lambda: ids(tmp_path / "trace.0") == [1, 2, 3], 10, "the traces")
    assert set_trace(traced, trace_count="1")["trace_count"] == "1"
    infer(traced)
    wait_until(lambda: is_written(tmp_path / "trace.1"), 10, "one more trace")
    assert [t["id"] for t in traces(tmp_path / "trace.1")] == [4]


@pytest.mark.slow
def test_a_model_of_its_own_settings(traced: RunningServer, tmp_path: Path) -> None:
    """It keeps them when those of all change, and gets those of all back when its own are cleared."""
    everywhere = set_trace(traced, trace_level=["TIMESTAMPS"], trace_rate="1")
    assert set_trace(traced, "batched", trace_level=["OFF"])["trace_level"] == ["OFF"]
    assert set_trace(traced, trace_count="9")["trace_count"] == "9"
    infer(traced, "batched")
    infer(traced, "inline")
    assert traced.get("/v2/models/batched/trace/setting").json()["trace_level"] == ["OFF"]
    assert traced.get("/v2/models/inline/trace/setting").json()["trace_count"] == "8"
    assert set_trace(traced, trace_count=None) == everywhere
    assert set_trace(traced, "batched", trace_level=None) == everywhere
    infer(traced, "batched")
    wait_until(lambda: is_written(tmp_path / "trace") and is_written(tmp_path / "trace.0"), 10, "both traces")
    assert [t["model_name"] for t in traces(tmp_path / "trace.0")] == ["inline"]
    assert [t["model_name"] for t in traces(tmp_path / "trace")] == ["batched"]
    assert set_trace(traced, trace_level=None)["trace_level"] == ["OFF"]


@pytest.mark.slow
def test_python_models_in_both_modes(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    write_python_model(tmp_path / "models", "repeats", REPEATS, more="model_transaction_policy { decoupled: true }")
    file = tmp_path / "trace"
    settings = [f"--trace-config={s}" for s in (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")]
    with serving(tmp_path / "log", tmp_path / "models", *settings) as server:
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [3]}]}
        for _ in range(2):
            assert server.infer("doubles", body).status == 200
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            found: list[Any] = []
            client.start_stream(lambda result, error: found.append(error or result))
            tensor = tritonclient.grpc.InferInput("X", [1], "FP32")
            tensor.set_data_from_numpy(np.full(1, 3, np.float32))
            client.async_stream_infer("repeats", [tensor])
            wait_until(lambda: len(found) == 3, 10, "three responses")
            client.stop_stream()
    before = OF_GRPC.index("COMPUTE_OUTPUT_START")
    responses = [*OF_GRPC[:before], *["INFER_RESPONSE_COMPLETE"] * 3, *OF_GRPC[before:]]
    assert [(t["model_name"], t["timestamps"]) for t in traces(file)] == [
        ("doubles", OF_HTTP),
        ("doubles", OF_HTTP),
        ("repeats", responses),
    ]


WAITS = """
HERE = os.path.dirname(__file__)

class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if x[0, 0] == 1:
            open(os.path.join(HERE, "begun"), "w").close()
            while not os.path.exists(os.path.join(HERE, "open")):
                time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)])]
"""


@pytest.mark.slow
def test_an_answer_that_waits_for_an_earlier_one_is_traced_when_it_leaves(tmp_path: Path) -> None:
    more = "dynamic_batching { preferred_batch_size: 1 preserve_ordering: true }"
    folder = write_python_model(tmp_path / "models", "waits", WAITS, f"max_batch_size: 1 {more}", count=2)
    file = tmp_path / "trace"
    settings = [f"--trace-config={s}" for s in (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")]
    with serving(tmp_path / "log", tmp_path / "models", *settings) as server, ThreadPoolExecutor(2) as pool:

        def ask(value: int) -> int:
            given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}
            return server.infer("waits", {"id": str(value), "inputs": [given]}).status

        try:
            slow = pool.submit(ask, 1)
            wait_until((folder / "1" / "begun").exists, 10, "the first one runs")
            quick = pool.submit(ask, 2)
            wait_until(lambda: server.statistics("waits")["inference_count"] == 1, 10, "the second one has run")
            assert not quick.done()
        finally:
            (folder / "1" / "open").touch()
        assert (slow.result(10), quick.result(10)) == (200, 200)
    merged: dict[int, dict[str, Any]] = {}
    for item in json.loads(file.read_text()):
        merged.setdefault(item["id"], {}).update(item)
    found = {t["request_id"]: {s["name"]: s["ns"] for s in t["timestamps"]} for t in merged.values()}
    assert found["2"]["COMPUTE_END"] < found["1"]["COMPUTE_END"]
    assert found["2"]["INFER_RESPONSE_COMPLETE"] >= found["1"]["INFER_RESPONSE_COMPLETE"]


ALL_TYPES = """
input [ { name: "I" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "S" data_type: TYPE_STRING dims: [ -1 ] },
        { name: "B" data_type: TYPE_BOOL dims: [ -1 ] }, { name: "H" data_type: TYPE_FP16 dims: [ -1 ] } ]
output [ { name: "O" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
HALVES = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "I").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("O", (values / 3).astype(np.float32))]))
        return answers
"""


@pytest.mark.slow
def test_tensors_of_every_kind(tmp_path: Path) -> None:
    """As the reference writes them, in JSON that can be read whatever the texts hold."""
    write_python_model(tmp_path / "models", "halves", HALVES, tensors=ALL_TYPES)
    settings = [f"--trace-config={s}" for s in (f"triton,file={tmp_path / 'trace'}", "level=TENSORS", "rate=1")]
    with (
        serving(tmp_path / "log", tmp_path / "models", *settings) as server,
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
    ):
        given = {
            "I": (np.array([[3, -7]], np.int32), "INT32"),
            "S": (np.array([[b'say "hi"\n', b"\xff"]], object), "BYTES"),
            "B": (np.array([[True, False]]), "BOOL"),
            "H": (np.array([[0.5, 2]], np.float16), "FP16"),
        }
        inputs = []
        for name, (array, type_) in given.items():
            inputs.append(tritonclient.grpc.InferInput(name, array.shape, type_))
            inputs[-1].set_data_from_numpy(array)
        client.infer("halves", inputs, request_id="r")
    items = json.loads((tmp_path / "trace").read_text())
    assert items[0] == {"id": 1, "model_name": "halves", "model_version": 1, "request_id": "r"}
    assert not any("timestamps" in item for item in items)
    assert tensors(tmp_path / "trace") == [
        ("TENSOR_QUEUE_INPUT", "I", "3,-7", "1,2", "INT32"),
        ("TENSOR_QUEUE_INPUT", "S", '"say "hi"\n","\\xff"', "1,2", "BYTES"),
        ("TENSOR_QUEUE_INPUT", "B", "1,0", "1,2", "BOOL"),
        ("TENSOR_QUEUE_INPUT", "H", "0.5,2.0", "1,2", "FP16"),
        ("TENSOR_BACKEND_OUTPUT", "O", "1.0,-2.3333333", "1,2", "FP32"),
    ]


@pytest.mark.slow
def test_each_request_of_a_batch_has_its_own_tensors(traced: RunningServer, tmp_path: Path) -> None:
    """Also those of a model on the loop; a request that failed has no outputs."""
    set_trace(traced, trace_level=["TIMESTAMPS", "TENSORS"], trace_rate="1")
    with tritonclient.http.InferenceServerClient(traced.url, concurrency=4) as client:
        waiting = []
        for value in range(4):
            tensor = tritonclient.http.InferInput("INPUT0", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.full((1, 1), value, np.int32))
            waiting.append(client.async_infer("batched", [tensor]))
        for request in waiting:
            request.get_result()
    infer(traced)
    body = {"inputs": [{"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [9]}]}
    assert traced.infer("look_up", body).status == 500
    wait_until(lambda: is_written(tmp_path / "trace") and len(traces(tmp_path / "trace")) == 6, 10, "the traces")
    found = tensors(tmp_path / "trace")
    assert found[0:8:2] == [("TENSOR_QUEUE_INPUT", "INPUT0", o[2], "1,1", "INT32") for o in found[1:8:2]]
    assert {o[2] for o in found[1:8:2]} == {"0", "1", "2", "3"}
    assert [t[0] for t in found[8:]] == ["TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT", "TENSOR_QUEUE_INPUT"]


@pytest.mark.slow
def test_requests_that_are_answered_from_the_cache_are_traced(tmp_path: Path) -> None:
    """A model's own, those of an ensemble, and those of a step of one."""
    models, cached = tmp_path / "models", "response_cache { enable: true }"
    write_identity(models, "kept", extra=cached)
    write_ensemble(models, "around", *chain("kept"), extra=cached)
    settings = (f"triton,file={tmp_path / 'trace'}", "level=TIMESTAMPS", "level=TENSORS", "rate=1")
    options = ("--cache-config", "local,size=1000000", *(f"--trace-config={s}" for s in settings))
    with serving(tmp_path / "log", models, *options) as server:
        for name, model in (("INPUT0", "kept"), ("INPUT0", "kept"), ("IN", "around"), ("IN", "around")):
            given = {"name": name, "datatype": "INT32", "shape": [1, 1], "data": [7]}
            assert server.infer(model, {"inputs": [given]}).status == 200
    without = [s for s in OF_HTTP if not s.startswith("COMPUTE")]
    inside = [s for s in without if not s.startswith("HTTP")]
    assert [(t["model_name"], t["timestamps"]) for t in traces(tmp_path / "trace")] == [
        ("kept", OF_HTTP), ("kept", without), ("around", without), ("kept", inside), ("around", without)
    ]  # fmt: skip
    assert {shown for _, _, shown, _, _ in tensors(tmp_path / "trace")} == {"7"}


@pytest.mark.slow
def test_large_tensors_are_shortened(traced: RunningServer, tmp_path: Path) -> None:
    set_trace(traced, trace_level=["TENSORS"], trace_rate="1")
    with tritonclient.http.InferenceServerClient(traced.url) as client:
        tensor = tritonclient.http.InferInput("INPUT0", [100_000], "INT32")
        tensor.set_data_from_numpy(np.arange(100_000, dtype=np.int32))
        client.infer("inline", [tensor])
    wait_until(lambda: is_written(tmp_path / "trace"), 10, "the trace")
    for _, _, data, shape, _ in tensors(tmp_path / "trace"):
        assert data == ",".join([*map(str, range(1024)), "..."])
        assert shape == "100000"


@pytest.mark.slow
def test_a_model_that_is_loaded_anew_is_traced_as_before(tmp_path: Path, models: Path) -> None:
    settings = ("--model-control-mode=explicit", "--load-model=*", f"--trace-config=triton,file={tmp_path / 'trace'}")
    with serving(tmp_path / "log", models, *settings) as server:
        set_trace(server, "inline", trace_level=["TIMESTAMPS"], trace_rate="1")
        for action in ("unload", "load"):
            assert server.post(f"/v2/repository/models/inline/{action}", {}).status == 200
        infer(server, request_id="x" * 2000)
    assert [t["request_id"] for t in traces(tmp_path / "trace")] == ["x" * 1024]


@pytest.mark.slow
def test_a_file_that_cannot_be_written_costs_no_answer(traced: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    set_trace(traced, trace_level=["TIMESTAMPS"], trace_rate="1")
    infer(traced)
    infer(traced)
    traced.wait_for("traces cannot be written to")


@pytest.mark.parametrize(
    ("settings", "status", "text"),
    [
        ({"trace_rate": "-1"}, 400, "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1"),
        ({"trace_rate": "x"}, 400, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": "1" * 5000}, 400, "Unable to parse 'trace_rate', got: 1"),
        ({"trace_count": "-2"}, 400, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ({"log_frequency": "4294967296"}, 400, "Unable to parse 'log_frequency', value is out of range"),
        ({"trace_count": ["1"]}, 400, "Unable to parse 'trace_count': expected a number in a string"),
        ({"trace_level": "OFF"}, 400, "Unable to parse 'trace_level': expected a list"),
        ({"trace_level": ["OFF", "TIMESTAMPS"]}, 400, "Expect only one trace level 'OFF' is specified"),
        ({"trace_file": "x"}, 501, "trace file location can not be updated through network protocol"),
    ],
)
def test_a_refused_change_changes_nothing(
    unchanged: RunningServer, settings: dict[str, object], status: int, text: str
) -> None:
    before = unchanged.get("/v2/trace/setting").json()
    answer = unchanged.post("/v2/trace/setting", {"log_frequency": "7", **settings})
    assert answer.status == status
    assert text in answer.error
    assert unchanged.get("/v2/trace/setting").json() == before


@pytest.mark.slow
def test_a_level_needs_a_file(tmp_path: Path, models: Path) -> None:
    with serving(tmp_path / "log", models) as server:
        answer = server.post("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]})
        text = "Attempting to set invalid trace setting :trace file name is not given"
        assert (answer.status, answer.error) == (400, text)
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            with pytest.raises(InferenceServerException, match="trace file name is not given"):
                client.update_trace_settings("inline", {"trace_level": ["TIMESTAMPS"]})
            with pytest.raises(InferenceServerException, match="expect only 1 value for 'trace_rate'"):
                client.update_trace_settings(settings={"trace_rate": ["1", "2"]})
            shown = client.update_trace_settings("inline", {"trace_rate": "7"}, as_json=True)
            assert shown["settings"]["trace_rate"] == {"value": ["7"]}
            assert client.get_trace_settings(as_json=True)["settings"]["trace_rate"] == {"value": ["1000"]}
        with tritonclient.http.InferenceServerClient(server.url) as client:
            assert client.get_trace_settings("inline")["trace_rate"] == "7"
            assert client.update_trace_settings("inline", {"trace_rate": None})["trace_rate"] == "1000"
        assert server.get("/v2/models/inline/versions/1/trace/setting").status == 404


def test_a_file_in_no_folder_is_refused_at_the_start(tmp_path: Path, models: Path) -> None:
    code, log = run_to_end(tmp_path / "log", models, f"--trace-config=triton,file={tmp_path / 'none' / 'trace'}")
    assert code == 1
    assert "name a file in a folder that exists" in log
