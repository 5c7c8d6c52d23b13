"""What a model asks and tells the server: other models' states, metrics, the log."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from naiad.worker.ipc import frames as p
from support.worker_peer import Child, Request, worker_of, write_execute, write_model

ONE = Request({"IN": np.array([1], np.int32)})
DONE = "return [pb_utils.InferenceResponse([])]"


def asked(child: Child, answer: Any = None, error: str = "") -> Any:
    """The next question, which is answered."""
    frame = child.expect(p.CONTROL_REQUEST)
    content = {"error": {"message": error, "code": 3}} if error else {"value": answer}
    child.send_json(p.REPLY, frame.number, content)
    return frame.json


def test_loading_models(tmp_path: Path) -> None:
    body = """
    pb_utils.load_model("a", config='{"x": 1}', files={"file:1/model.py": b"\\x00code"})
    pb_utils.load_model(model_name=b"b")
    pb_utils.unload_model("a", unload_dependents=True)
    ready = [pb_utils.is_model_ready("a", "2"), pb_utils.is_model_ready(model_name=b"b")]
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(ready))])]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [ONE])
        files = {"file:1/model.py": base64.b64encode(b"\x00code").decode()}
        assert asked(child) == {"what": "load_model", "name": "a", "config": '{"x": 1}', "files": files}
        assert asked(child) == {"what": "load_model", "name": "b", "config": "", "files": {}}
        assert asked(child) == {"what": "unload_model", "name": "a", "unload_dependents": True}
        assert asked(child, True) == {"what": "is_model_ready", "name": "a", "version": "2"}
        assert asked(child, False) == {"what": "is_model_ready", "name": "b", "version": ""}
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert response.outputs["OUT"].tolist() == [True, False]


def test_loading_that_fails(tmp_path: Path) -> None:
    body = """
    texts = []
    for call in (lambda: pb_utils.load_model("a"), lambda: pb_utils.unload_model("a"),
                 lambda: pb_utils.is_model_ready("a", "x"), lambda: pb_utils.load_model("a", files=[1])):
        try:
            call()
        except pb_utils.TritonModelException as e:
            texts.append(str(e))
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(texts, dtype=object))])]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [ONE])
        for _ in range(3):
            asked(child, error="the reason")
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert [t.decode() for t in response.outputs["OUT"]] == [
            "Failed to load model: the reason",
            "Failed to unload model: the reason",
            "Failed to check model readiness: the reason",
            "failed to load model 'a', files should be a dictionary of file paths and file contents",
        ]


def test_a_model_may_ask_while_it_is_initialized(tmp_path: Path) -> None:
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            pb_utils.load_model("helper")
        def execute(self, requests):
            return []
    """
    child = Child()
    try:
        frame = child.start(write_model(tmp_path, source))
        assert frame.json["what"] == "load_model"
        child.send_json(p.REPLY, frame.number, {"value": None})
        assert child.expect(p.READY).json["is_ready"] is False
    finally:
        child.close()


METRICS = """
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(name="req", description="requests", kind=pb_utils.MetricFamily.COUNTER)
        self.counter = self.family.Metric(labels={"model": "m"})
        times = pb_utils.MetricFamily("times", "times", pb_utils.MetricFamily.HISTOGRAM)
        self.times = (times, times.Metric(buckets=[0.1, 1]))
        levels = pb_utils.MetricFamily("levels", "levels", pb_utils.MetricFamily.GAUGE)
        self.levels = (levels, levels.Metric())
    def execute(self, requests):
        self.counter.increment(2)
        self.times[1].observe(0.5)
        self.levels[1].set(-3.5)
        self.levels[1].increment(-1)
        value = self.counter.value()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value]))])]
    def finalize(self):
        del self.counter
        self.family = None
"""


def test_metrics(tmp_path: Path) -> None:
    child = Child()
    try:
        frame = child.start(write_model(tmp_path, METRICS))
        assert frame.json == {
            "what": "metric_family", "family": 1, "name": "req", "description": "requests", "kind": "counter",
        }  # fmt: skip
        child.send_json(p.REPLY, frame.number, {"value": None})
        assert asked(child) == {"what": "metric", "metric": 1, "family": 1, "labels": {"model": "m"}, "buckets": None}
        assert asked(child)["kind"] == "histogram"
        assert asked(child) == {"what": "metric", "metric": 2, "family": 2, "labels": {}, "buckets": [0.1, 1.0]}
        assert asked(child)["kind"] == "gauge"
        assert asked(child)["metric"] == 3
        child.expect(p.READY)
        child.execute(1, [ONE])
        assert [child.expect(p.NOTIFICATION).json for _ in range(4)] == [
            {"what": "metric_increment", "metric": 1, "by": 2.0},
            {"what": "metric_observe", "metric": 2, "value": 0.5},
            {"what": "metric_set", "metric": 3, "to": -3.5},
            {"what": "metric_increment", "metric": 3, "by": -1.0},
        ]
        assert asked(child, 2.0) == {"what": "metric_value", "metric": 1}
        assert child.responses(child.expect(p.RESPONSES))[0].outputs["OUT"].tolist() == [2.0]
        child.send(p.FINALIZE)
        assert child.expect(p.NOTIFICATION).json == {"what": "metric_delete", "metric": 1}
        assert child.expect(p.NOTIFICATION).json == {"what": "metric_family_delete", "family": 1}
        assert child.process.wait(20) == 0
    finally:
        child.close()


def test_metrics_that_are_refused(tmp_path: Path) -> None:
    body = """
    F = pb_utils.MetricFamily
    counters, histograms = F("c", "c", F.COUNTER), F("h", "h", F.HISTOGRAM)
    counter, histogram, gone = counters.Metric(), histograms.Metric(buckets=[1.0]), F("g", "g", F.GAUGE).Metric()
    texts = []
    for call in (
        lambda: F("x", "x", F.COUNTER), lambda: histograms.Metric(), lambda: counters.Metric(buckets=[1.0]),
        lambda: histograms.Metric(buckets=(1.0,)), lambda: counters.Metric(labels=["a"]), lambda: counter.increment(-1),
        lambda: counter.set(1), lambda: counter.observe(1), lambda: histogram.increment(1), lambda: histogram.value(),
        lambda: gone.set(1), lambda: gone.value(),
    ):
        try:
            call()
            texts.append("passed")
        except pb_utils.TritonModelException as e:
            texts.append(str(e))
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(texts, dtype=object))])]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [ONE])
        for _ in range(6):
            assert asked(child)["what"] in ("metric_family", "metric")
        assert child.expect(p.NOTIFICATION).json["what"] == "metric_delete"
        assert child.expect(p.NOTIFICATION).json["what"] == "metric_family_delete"
        asked(child, error="a family 'x' of another kind exists")
        (response,) = child.responses(child.expect(p.RESPONSES, p.NOTIFICATION))
    texts = [t.decode() for t in response.outputs["OUT"]]
    assert texts[:5] == [
        "Error when creating MetricFamily: a family 'x' of another kind exists",
        "Failed to create metric. Missing required buckets.",
        "Failed to create metric. Unexpected buckets found.",
        "Failed to create metric. Buckets must be a list.",
        "Failed to create metric. Labels must be a dictionary.",
    ]
    assert "can only be incremented monotonically by non-negative values, found -1" in texts[5]
    assert texts[6] == "Failed to set metric value: TRITONSERVER_METRIC_KIND_COUNTER does not support Set"
    assert texts[7] == "Failed to observe metric value: TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"
    assert texts[8] == "Failed to increment metric value: TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"
    assert texts[9] == "Failed to get metric value: TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"
    for text in texts[10:]:
        assert "Invalid metric operation as the corresponding 'MetricFamily' has been deleted." in text


def test_the_log(tmp_path: Path) -> None:
    body = f"""
    log = pb_utils.Logger
    log.log("a")
    log.log("b", log.ERROR)
    log.log_info("c"); log.log_warn("d"); log.log_error("e"); log.log_verbose("ü")
    {DONE}
    """
    model = write_execute(tmp_path, body)
    with worker_of(model) as child:
        child.execute(1, [ONE])
        lines = [child.expect(p.LOG).json for _ in range(6)]
        assert [(line["level"], line["message"], line["line"]) for line in lines] == [
            ("INFO", "a", 9), ("ERROR", "b", 10), ("INFO", "c", 11), ("WARNING", "d", 11), ("ERROR", "e", 11),
            ("VERBOSE", "ü", 11),
        ]  # fmt: skip
        assert all(line["file"] == str(model) for line in lines)
        child.expect(p.RESPONSES)


def test_where_the_model_lies(tmp_path: Path) -> None:
    body = """
    out = np.array([pb_utils.get_model_dir()], dtype=object)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
    """
    model = write_execute(tmp_path, body)
    with worker_of(model) as child:
        assert child.run([ONE])[0].outputs["OUT"][0].decode() == str(model.parent)


def test_answers_that_nobody_waits_for_are_dropped(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, DONE)) as child:
        child.send_json(p.REPLY, 55, {"value": 1})
        child.answer_call(56, error="late")
        assert child.run([ONE])[0].error == ""


def test_an_unknown_frame_ends_the_process(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, DONE)) as child:
        child.send(31)
        assert child.process.wait(20) == 1
        assert re.search(r"a frame of kind 31, which version 1 does not know", child.said())


def test_json_payloads_are_utf8(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, "raise RuntimeError('ü')")) as child:
        child.execute(1, [ONE])
        frame = child.expect(p.DONE)
        assert "ü" in json.loads(frame.payload.decode("utf-8"))["message"]
