"""How loaded a model is, in the answers of ``generate`` and ``generate_stream``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.testing import HttpResponse, RunningServer, serving
from support.python_models import DOUBLES, write_python_model

# Keeps the figures of a cache, and those of another model, which are not its own.
KEEPS_A_CACHE = """
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="nv_trt_llm_kv_cache_block_metrics", description="blocks", kind=pb_utils.MetricFamily.GAUGE
        )
        self.metrics = []
        for kind, value in (("used", 3), ("max", 4), ("tokens_per", 64), ("free", 1)):
            for model, factor in (("caches", 1), ("another", 7)):
                labels = {"kv_cache_block_type": kind, "model": model, "version": "1"}
                self.metrics.append(self.family.Metric(labels=labels))
                self.metrics[-1].set(factor * value)

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return answers
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("models")
    write_python_model(folder / "models", "caches", KEEPS_A_CACHE)
    write_python_model(folder / "models", "doubles", DOUBLES)
    write_ensemble(folder / "models")
    with serving(folder / "log", folder / "models") as running:
        yield running


def write_ensemble(repository: Path) -> None:
    """``both``, an ensemble of one step."""
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "config.pbtxt").write_text(
        """platform: "ensemble"
        input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
        output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
        ensemble_scheduling { step { model_name: "doubles" model_version: -1
          input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } }"""
    )


def ask(server: RunningServer, path: str, wanted: str, body: object = None) -> HttpResponse:
    raw = json.dumps({"X": [1.0]} if body is None else body).encode()
    return server.request("POST", f"/v2/models/{path}", raw, [("Endpoint-Load-Metrics-Format", wanted)])


@pytest.mark.parametrize("path", ["caches/generate", "caches/generate_stream"])
def test_figures_of_a_cache(server: RunningServer, path: str) -> None:
    for wanted in ("json", "JSON"):
        kind, _, text = ask(server, path, wanted).headers["endpoint-load-metrics"].partition(" ")
        figures = json.loads(text)["named_metrics"]
        assert kind == "JSON"
        assert (figures["kv_cache_utilization"], figures["max_token_capacity"]) == (0.75, 256)
    text = ask(server, path, "text").headers["endpoint-load-metrics"]
    assert text.startswith("TEXT named_metrics.kv_cache_utilization=0.750000, named_metrics.max_token_capacity=256, ")


def test_a_model_without_a_cache_tells_its_requests(server: RunningServer) -> None:
    figures = "TEXT named_metrics.pending_requests=0, named_metrics.running_requests=0"
    assert ask(server, "doubles/generate", "text").headers["endpoint-load-metrics"] == figures


@pytest.mark.parametrize("path", ["both/generate", "both/generate_stream"])
def test_an_ensemble_tells_its_requests(server: RunningServer, path: str) -> None:
    figures = json.loads(ask(server, path, "json").headers["endpoint-load-metrics"].removeprefix("JSON "))
    assert figures == {"named_metrics": {"pending_requests": 0, "running_requests": 0}}


def test_nothing_is_told_unasked(server: RunningServer) -> None:
    for answer in (
        ask(server, "doubles/generate", "xml"),
        ask(server, "doubles/generate", ""),
        server.post("/v2/models/doubles/generate", {"X": [1.0]}),
    ):
        assert answer.status == 200
        assert "endpoint-load-metrics" not in answer.headers
