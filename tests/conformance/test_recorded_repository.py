"""Loads and unloads as they were asked of the reference server, one after another, and what it answered.

Cases without ``expect`` are sent for what they change. ``meant_repository.json`` lists the answers that differ on
purpose, with the reason; each is a row of docs/compatibility.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from conformance import replay_grpc, replay_http
from conformance.recorded_models import ONE_ON_THE_CPU
from conformance.recorded_python_models import COMPLETES_ITSELF, HEAD, SAME, write_repository
from naiad.testing import RunningServer, serving
from support.served_models import tensor

HERE = Path(__file__).parent
MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant_repository.json").read_text(encoding="utf-8"))
HTTP = replay_http.load("repository")
GRPC = replay_grpc.load("repository")
TENSORS = f"input [ {tensor('INPUT0', 'TYPE_FP32', '-1')} ] output [ {tensor('OUTPUT0', 'TYPE_FP32', '-1')} ]"
USABLE = f'backend: "python" {TENSORS} {ONE_ON_THE_CPU} '
REFUSES = """
class TritonPythonModel:
    def initialize(self, args):
        raise pb_utils.TritonModelException('init refused')

    def execute(self, requests):
        return []
"""
BROKEN = {
    "bad_init": (USABLE, REFUSES),
    "bad_noexec": (USABLE, "class TritonPythonModel:\n    pass\n"),
    "bad_syntax": (USABLE, "class TritonPythonModel:\n    def execute(self, requests)\n        return []\n"),
    "bad_config": ('backend: "python" max_batch_size: banana', SAME),
    "bad_field": ('backend: "python" no_such_field: 1', SAME),
    "bad_name": ('name: "other_name" ' + USABLE, SAME),
    "bad_backend": (USABLE.replace("python", "nonesuch"), SAME),
    "bad_dims": (USABLE.replace("-1", "0"), SAME),
    "bad_dyn": (USABLE + "dynamic_batching { }", SAME),
    "bad_pref": (USABLE + "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 8 ] }", SAME),
    "bad_nooutput": (USABLE.partition(" output ")[0] + ONE_ON_THE_CPU, SAME),
    "auto_partial": (
        f'backend: "python" max_batch_size: 16 input [ {tensor("INPUT0", "TYPE_FP32", "-1, 2")} ]',
        COMPLETES_ITSELF.format(more="set_dynamic_batching()"),
    ),
}


def write_broken(repository: Path) -> None:
    """The models that fail, or ought to."""
    for name, (config, source) in BROKEN.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.py").write_text(HEAD + source)
        (repository / name / "config.pbtxt").write_text(config)
    (repository / "bad_noversion").mkdir()
    (repository / "bad_noversion" / "config.pbtxt").write_text(USABLE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    write_repository(tmp_path / "models")
    write_broken(tmp_path / "models")
    started = ("--load-model=simple", "--load-model=simple_dyn")
    with serving(tmp_path / "log", tmp_path / "models", "--model-control-mode=explicit", *started) as running:
        yield running
        assert "Exception in callback" not in running.log


@pytest.mark.slow
def test_http_answers_are_the_recorded_ones(server: RunningServer) -> None:
    for case in HTTP:
        answer = replay_http.send(server, case)
        expected = MEANT.get(case["name"], case).get("expect")
        if expected is not None:
            replay_http.assert_answer(answer, expected)
            assert answer.headers["content-type"] == expected["type"]


@pytest.mark.slow
def test_grpc_answers_are_the_recorded_ones(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc_url) as channel:
        for case in GRPC:
            found = replay_grpc.answer(channel, case)
            assert found == case.get("expect", found), case["name"]


def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    names = {case["name"] for case in HTTP}
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert name in names
        assert f"| {difference['row']} |" in page, name
