"""Traces of Python models: what they add, the calls that they make, their responses; in files and as spans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from naiad.testing import RunningServer, serving, wait_until
from support.otlp_collector import collecting
from support.python_models import DOUBLES, REPEATS, write_python_model
from support.served_ensembles import step, write_ensemble

CALLS = """
import json
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            pb_utils.Logger.log_info("looks")
            trace = request.trace()
            trace.report_activity("TOKENIZE_START")
            trace.report_activity("TOKENIZE_END", time.monotonic_ns())
            trace.report_activity("looked")
            for call in (trace, pb_utils.InferenceTrace() if hasattr(pb_utils, "InferenceTrace") else None):
                inner = pb_utils.InferenceRequest(
                    model_name="doubles", inputs=[x], requested_output_names=["Y"], trace=call, request_id="inner"
                )
                response = inner.exec()
            missing = pb_utils.InferenceRequest(
                model_name="fails", inputs=[x], requested_output_names=["Y"], trace=trace
            ).exec()
            assert missing.has_error()
            context = np.array([(trace.get_context() or "").encode()], object)
            y = pb_utils.get_output_tensor_by_name(response, "Y")
            answers.append(pb_utils.InferenceResponse([y, pb_utils.Tensor("CONTEXT", context.reshape(1, 1))]))
        return answers
"""
FAILS = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("never")
"""
ASKS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            inner = pb_utils.InferenceRequest(
                model_name="chain", inputs=[x], requested_output_names=["Y"], trace=request.trace()
            )
            answers.append(pb_utils.InferenceResponse(inner.exec().output_tensors()))
        return answers
"""
WITH_CONTEXT = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "CONTEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
SUMMARY = os.environ.get("TRACE_SUMMARY", "")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_python_model(folder, "calls", CALLS, tensors=WITH_CONTEXT)
    write_python_model(folder, "asks", ASKS)
    steps = step("doubles", {"X": "X"}, {"Y": "Z"}), step("doubles", {"X": "Z"}, {"Y": "Y"})
    write_ensemble(folder, "chain", *steps, inputs={"X": "TYPE_FP32 -1"}, outputs={"Y": "TYPE_FP32 -1"})
    write_python_model(folder, "doubles", DOUBLES)
    write_python_model(folder, "fails", FAILS)
    write_python_model(folder, "repeats", REPEATS, "model_transaction_policy { decoupled: true }")
    return folder


def infer(server: RunningServer, model: str, request_id: str = "", value: float = 3) -> dict[str, Any]:
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}
    body = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
    response = server.request("POST", f"/v2/models/{model}/infer", body)
    assert response.status == 200, response.body
    return {o["name"]: o["data"] for o in json.loads(response.body)["outputs"]}


def stream(server: RunningServer, count: int) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        came: list[Any] = []
        client.start_stream(lambda result, error: came.append(error or result))
        tensor = tritonclient.grpc.InferInput("X", [1], "FP32")
        tensor.set_data_from_numpy(np.full(1, count, np.float32))
        client.async_stream_infer("repeats", [tensor], request_id="many", enable_empty_final_response=True)
        wait_until(lambda: len(came) == count + 1, 10, "the responses and their end")
        client.stop_stream()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Path]:
    """The file of a server that traced a request to each model, and has ended."""
    folder = tmp_path_factory.mktemp("traces")
    options = (f"triton,file={folder / 'trace.json'}", "level=TIMESTAMPS", "rate=1")
    with serving(folder / "log", models, *(f"--trace-config={o}" for o in options), "--log-format=json") as server:
        assert infer(server, "calls", "outer") == {"Y": [6.0], "CONTEXT": [""]}
        assert infer(server, "asks", "nested") == {"Y": [12.0]}
        assert infer(server, "doubles") == {"Y": [6.0]}
        stream(server, 3)
    yield folder / "trace.json"


def read(path: Path) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for item in json.loads(path.read_text()):
        found.setdefault(item["id"], {}).update(item)
    return found


@pytest.mark.slow
def test_calls_of_a_traced_request_are_its_children(written: Path) -> None:
    found = read(written)
    outer = next(t for t in found.values() if t.get("request_id") == "outer")
    children = [t for t in found.values() if t.get("parent_id") == outer["id"]]
    # The call with a trace of its own is no child.
    assert [(t["model_name"], t.get("request_id")) for t in children] == [("doubles", "inner"), ("fails", None)]
    names = [[t["name"] for t in child["timestamps"]] for child in children]
    stages = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END"]
    ran = ["COMPUTE_OUTPUT_START", "COMPUTE_END"]
    end = ["INFER_RESPONSE_COMPLETE", "REQUEST_END"]
    assert names == [stages + ran + end, stages + end]
    at = {t["name"]: t["ns"] for t in outer["timestamps"]}
    for child in children:
        times = [t["ns"] for t in child["timestamps"]]
        assert times == sorted(times)
        assert at["COMPUTE_START"] <= times[0] <= times[-1] <= at["COMPUTE_END"]


@pytest.mark.slow
def test_a_called_ensemble_has_its_steps_as_children(written: Path) -> None:
    found = read(written)
    outer = next(t for t in found.values() if t.get("request_id") == "nested")
    (called,) = [t for t in found.values() if t.get("parent_id") == outer["id"]]
    assert called["model_name"] == "chain"
    steps = [t for t in found.values() if t.get("parent_id") == called["id"]]
    assert [t["model_name"] for t in steps] == ["doubles", "doubles"]
    assert all("COMPUTE_START" in {t["name"] for t in step["timestamps"]} for step in steps)


@pytest.mark.slow
def test_a_model_adds_activities_in_their_place(written: Path) -> None:
    outer = next(t for t in read(written).values() if t.get("request_id") == "outer")
    names = [t["name"] for t in outer["timestamps"]]
    # The worker may begin before the server has noted that the inputs are sent.
    within = names[names.index("COMPUTE_START") + 1 : names.index("COMPUTE_OUTPUT_START")]
    assert [n for n in within if n != "COMPUTE_INPUT_END"] == ["TOKENIZE_START", "TOKENIZE_END", "looked"]


@pytest.mark.slow
def test_a_line_of_a_model_names_its_request(written: Path) -> None:
    lines = [json.loads(line) for line in (written.parent / "log").read_text().splitlines()]
    (looks,) = [line for line in lines if line["message"].endswith(": looks")]
    assert (looks["request_id"], looks["model"], looks["file"]) == ("outer", "calls", "model.py")
    assert "outer" not in looks["message"]


@pytest.mark.slow
def test_each_response_of_a_decoupled_model_is_in_the_trace(written: Path) -> None:
    many = next(t for t in read(written).values() if t.get("request_id") == "many")
    names = [t["name"] for t in many["timestamps"]]
    assert names.count("INFER_RESPONSE_COMPLETE") == 4
    assert names[-1] == "GRPC_SEND_END"


@pytest.mark.slow
@pytest.mark.skipif(not SUMMARY, reason="TRACE_SUMMARY does not name the reference's trace_summary.py")
def test_the_reference_reads_our_file(written: Path) -> None:
    done = subprocess.run([sys.executable, SUMMARY, "-t", str(written)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for model in ("calls", "doubles", "fails", "repeats"):
        assert f"Summary for {model} (1): trace count = " in done.stdout
    assert "HTTP infer request (avg)" in done.stdout
    assert "GRPC infer request (avg)" in done.stdout


@pytest.mark.slow
def test_spans_of_a_model_that_calls_others(tmp_path: Path, models: Path) -> None:
    with collecting() as collector:
        given = ("mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={collector.url}", "rate=1")
        with serving(tmp_path / "log", models, *(f"--trace-config={o}" for o in given)) as server:
            context = json.loads(infer(server, "calls", "outer")["CONTEXT"][0])
    spans = collector.spans
    assert not collector.problems
    by_id = {s.span_id: s for s in spans}
    outer = [s for s in spans if s.trace_id.hex() == context["traceparent"].split("-")[1]]
    run = next(s for s in outer if s.span_id.hex() == context["traceparent"].split("-")[2])
    assert run.name == "compute"
    assert by_id[run.parent_span_id].name == "calls"
    assert sorted(s.name for s in outer if s.parent_span_id == run.span_id) == ["TOKENIZE", "doubles", "fails"]
    assert {e.name for e in run.events} == {
        "COMPUTE_START", "COMPUTE_INPUT_END", "looked", "COMPUTE_OUTPUT_START", "COMPUTE_END",
    }  # fmt: skip
    # Each span lies within its parent.
    for span in outer:
        parent = by_id.get(span.parent_span_id)
        if parent is not None:
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


@pytest.mark.slow
def test_a_traced_request_is_the_exemplar_of_its_bucket(tmp_path: Path, models: Path) -> None:
    with collecting() as collector:
        given = ("mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={collector.url}", "rate=0")
        more = (*(f"--trace-config={o}" for o in given), "--metrics-config=histogram_latencies=true")
        with serving(tmp_path / "log", models, *more) as server:
            infer(server, "doubles")
            tensor = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}
            trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
            parent = ("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01")
            body = json.dumps({"inputs": [tensor]}).encode()
            assert server.request("POST", "/v2/models/doubles/infer", body, (parent,)).status == 200
            url = f"http://127.0.0.1:{server.metrics}/metrics"
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            with urllib.request.urlopen(urllib.request.Request(url, headers=accept)) as response:
                assert response.headers["Content-Type"].startswith("application/openmetrics-text")
                page = response.read().decode()
    found = {f.name: f for f in text_string_to_metric_families(page)}
    samples = found["nv_inference_request_duration_histogram_us"].samples
    marked = [s for s in samples if s.exemplar is not None]
    assert [s.exemplar.labels for s in marked] == [{"trace_id": trace_id}]
    counts = {s.labels["model"]: s.value for s in samples if s.name.endswith("_count")}
    assert counts["doubles"] == 2
