"""Shared memory as it was registered and used on the reference server, and what it answered.

The cases are sent in their order, to one server of their own. A case without ``expect`` is sent for its effect;
``meant_regions.json`` has the form of ``meant.json``. The object that they name gets a name of its own for each test.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from conformance import replay_grpc, replay_http
from naiad.testing import RunningServer, serving
from support.served_models import SUM_AND_DIFFERENCE, write_model
from support.served_transports import TRANSPORTS

HERE = Path(__file__).parent
MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant_regions.json").read_text(encoding="utf-8"))
CONFIG = 'backend: "onnxruntime"'
RECORDED_KEYS = ("golden_shm_g", "golden_shm")


@pytest.fixture(params=TRANSPORTS)
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    write_model(tmp_path / "models", "simple", CONFIG, graph=SUM_AND_DIFFERENCE)
    options = ("--allow-client-shm=true", "--grpc-transport", request.param)
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", *options) as running:
        yield running


@pytest.fixture
def key() -> Iterator[str]:
    """The name of an object of 1024 bytes: 16 numbers twice, then zeros."""
    name = f"naiad-test-{uuid.uuid4().hex}"
    numbers = np.arange(16, dtype=np.int32)
    with open(f"/dev/shm/{name}", "wb") as file:
        file.write(np.concatenate([numbers, np.ones(16, np.int32)]).tobytes() + bytes(1024 - 128))
    yield name
    os.unlink(f"/dev/shm/{name}")


def renamed(case: dict[str, Any], key: str) -> dict[str, Any]:
    text = json.dumps(case)
    for recorded in RECORDED_KEYS:
        text = text.replace(recorded, key)
    return dict(json.loads(text))


def expected_instead(recorded: dict[str, Any]) -> dict[str, Any]:
    """The answer that is meant instead of a recorded one, if they differ."""
    meant = MEANT.get(recorded["name"])
    return {"expect": meant["expect"]} if meant else {}


@pytest.mark.parametrize("server", TRANSPORTS[:1], indirect=True)
def test_http_answers_are_the_recorded_ones(server: RunningServer, key: str) -> None:
    for recorded in replay_http.load("regions"):
        case = renamed({**recorded, **expected_instead(recorded)}, key)
        answer = replay_http.send(server, case)
        if "expect" in case:
            replay_http.assert_answer(answer, case["expect"])
        if case["name"] == "shm_infer_out":
            found = np.fromfile(f"/dev/shm/{key}", np.int32)[32:48]
            assert found.tolist() == list(range(1, 17))


@pytest.mark.slow
def test_grpc_answers_are_the_recorded_ones(server: RunningServer, key: str) -> None:
    with grpc.insecure_channel(server.grpc_url) as channel:
        for recorded in replay_grpc.load("regions"):
            if recorded["name"] == "cuda_register" and os.path.exists("/dev/nvidia0"):
                continue  # recorded where there is no device
            case = renamed({**recorded, **expected_instead(recorded)}, key)
            found = replay_grpc.answer(channel, case)
            assert found == case.get("expect", found), case["name"]


def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    names = {case["name"] for case in (*replay_http.load("regions"), *replay_grpc.load("regions"))}
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert name in names
        assert f"| {difference['row']} |" in page, name
