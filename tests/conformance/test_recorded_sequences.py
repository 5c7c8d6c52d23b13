"""Requests of sequences as they were sent to the reference server, and what it answered, over both protocols.

``meant_sequences.json`` says what is meant to differ, and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from conformance import replay_grpc, replay_http
from conformance.recorded_models import FRONT_ENDS, ONE_ON_THE_CPU
from naiad.testing import HttpResponse, RunningServer, serving
from support.served_models import tensor

HERE = Path(__file__).parent
MEANT: dict[str, dict[str, str]] = json.loads((HERE / "meant_sequences.json").read_text(encoding="utf-8"))
CASES = replay_http.load("sequences")
TOTALS = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        def one(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]

        start, end, ready = (float(one(name)) for name in ("START", "END", "READY"))
        key = one("CORRID")
        key = key.decode() if isinstance(key, bytes) else int(key)
        total = self.totals[key] = (0 if start else self.totals.get(key, 0)) + int(one("INPUT"))
        debug = json.dumps([start, end, ready, key, request.flags()]).encode()
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("OUTPUT", np.array([[total]], np.int32)),
            pb_utils.Tensor("DEBUG", np.array([[debug]], object)),
        ])
"""


def write(repository: Path, name: str, strategy: str, correlation: str = "TYPE_UINT64") -> None:
    outputs = ", ".join((tensor("OUTPUT", "TYPE_INT32", "1"), tensor("DEBUG", "TYPE_STRING", "1")))
    values = {"START": "fp32_false_true: [ 0, 1 ]", "END": "int32_false_true: [ 0, 1 ]"}
    values |= {"READY": "bool_false_true: [ false, true ]", "CORRID": f"data_type: {correlation}"}
    controls = ", ".join(
        f'{{ name: "{kind}" control [ {{ kind: CONTROL_SEQUENCE_{kind} {value} }} ] }}'
        for kind, value in values.items()
    )
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(TOTALS)
    (repository / name / "config.pbtxt").write_text(
        f"""name: "{name}" backend: "python" max_batch_size: 8
        input [ {tensor("INPUT", "TYPE_INT32", "1")} ] output [ {outputs} ] {ONE_ON_THE_CPU}
        sequence_batching {{
          max_sequence_idle_microseconds: 3000000 {strategy} control_input [ {controls} ]
        }}"""
    )


@pytest.fixture(scope="module", params=FRONT_ENDS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("sequences") / "models"
    write(repository, "seq_direct", "direct { }")
    write(repository, "seq_oldest", "oldest { max_candidate_sequences: 4 }")
    write(repository, "seq_string", "oldest { max_candidate_sequences: 4 }", "TYPE_STRING")
    options = ("--model-repository", repository, "--frontend-processes", request.param)
    with serving(repository.parent / "log", *options) as running:
        yield running


def test_http_answers_are_the_recorded_ones(server: RunningServer) -> None:
    # All of them in their order: each depends on those before.
    for case in CASES:
        answer = replay_http.send(server, case)
        if case["name"] in MEANT:
            assert_meant(answer, MEANT[case["name"]])
        elif case["expect"] is None:
            assert answer.status in (200, 400), case["name"]
        else:
            replay_http.assert_answer(answer, case["expect"])


def assert_meant(answer: HttpResponse, meant: dict[str, str]) -> None:
    if "text" in meant:
        assert answer.status == 400
        assert meant["text"] in answer.error
        return
    outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
    assert outputs["DEBUG"] == [meant["debug"]]


def test_grpc_answers_are_the_recorded_ones(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc_url) as channel:
        for case in replay_grpc.load("sequences"):
            found: dict[str, Any] = replay_grpc.answer(channel, case)
            assert case["expect"] in (None, found), case["name"]


def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert name in {case["name"] for case in CASES}
        assert f"| {difference['row']} |" in page, name
