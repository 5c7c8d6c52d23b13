"""Requests as they were sent to the reference server and its Python models, and what it answered, over both protocols.

``cases/python.json``, ``cases/generate.json`` and ``cases/grpc_python.json`` have the form of the other cases,
``meant_generate.json`` that of ``meant.json``. Places in a model's source are written
``<repository>/MODEL/VERSION/model.py(LINE)``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from conformance import replay_grpc, replay_http
from conformance.recorded_python_models import write_repository
from naiad.testing import RunningServer, serving
from support.served_transports import TRANSPORTS

PLACE = re.compile(r"\S*/(\w+/\d+/model\.py)\(\d+\)")
GENERATE = replay_http.load("generate")
HERE = Path(__file__).parent
MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant_generate.json").read_text(encoding="utf-8"))
# The same request as in ``infer.json``.
ALSO_MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant.json").read_text(encoding="utf-8"))


def cases(found: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in found]


def placed(text: str) -> str:
    """A text with what is the same on every machine in the place of paths and lines."""
    return PLACE.sub(r"<repository>/\1(LINE)", text)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python") / "models"
    write_repository(folder)
    return folder


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(repository: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    log = repository.parent / f"log_{request.param}"
    with serving(log, "--model-repository", repository, "--grpc-transport", request.param) as running:
        yield running
        assert "Exception in callback" not in running.log


@pytest.mark.parametrize("case", cases(replay_http.load("python") + GENERATE))
@pytest.mark.parametrize("server", TRANSPORTS[:1], indirect=True)
def test_http_answer_is_the_recorded_one(server: RunningServer, case: dict[str, Any]) -> None:
    answer = replay_http.send(server, case)
    if answer.status >= 400:
        answer = dataclasses.replace(answer, body=placed(answer.body.decode()).encode())
    replay_http.assert_answer(answer, {**ALSO_MEANT, **MEANT}.get(case["name"], case)["expect"])


@pytest.mark.slow
def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert name in {case["name"] for case in GENERATE}
        assert f"| {difference['row']} |" in page, name


@pytest.mark.parametrize("case", cases(replay_grpc.load("python")))
def test_grpc_answer_is_the_recorded_one(server: RunningServer, case: dict[str, Any]) -> None:
    with grpc.insecure_channel(server.grpc_url) as channel:
        found = replay_grpc.answer(channel, case)
    assert json.loads(placed(json.dumps(found, ensure_ascii=False))) == case["expect"]


@pytest.mark.parametrize("server", TRANSPORTS[:1], indirect=True)
def test_parameters_of_a_response_reach_both_protocols(server: RunningServer) -> None:
    tensor = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}
    answer = server.infer("resp_params", {"inputs": [tensor]}).json()
    assert answer["parameters"] == {"s": "text", "i": 7, "b": True}
    call = {
        "path": "/inference.GRPCInferenceService/ModelInfer",
        "request": {
            "model_name": "resp_params",
            "inputs": [{"name": "IN", "datatype": "INT32", "shape": ["1"], "contents": {"int_contents": [1]}}],
        },
    }
    with grpc.insecure_channel(server.grpc_url) as channel:
        found = replay_grpc.answer(channel, call)["response"]["parameters"]
    assert found == {"s": {"string_param": "text"}, "i": {"int64_param": "7"}, "b": {"bool_param": True}}


@pytest.mark.parametrize("server", TRANSPORTS[:1], indirect=True)
def test_an_error_that_the_model_chose_counts_as_a_success(server: RunningServer) -> None:
    def counts() -> tuple[int, int]:
        found = server.statistics("fail")["inference_stats"]
        return found["success"]["count"], found["fail"]["count"]

    succeeded, failed = counts()
    for mode in (0, 1, 2, 3, 22, 0):
        server.infer("fail", {"inputs": [{"name": "MODE", "shape": [1], "datatype": "INT32", "data": [mode]}]})
    # It failed twice, with 1 and 22. The answers to 2 and 3 are its own.
    assert counts() == (succeeded + 4, failed + 2)
