"""gRPC calls as they were made to the reference server, and what it answered, over both transports.

``cases/grpc_*.json`` hold the messages in protobuf's JSON form (``raw``: as bytes in base64, and the answer as well).
The platform of models is that of our stand-ins. The cases of ``grpc_unready`` were recorded while the server was not
ready. ``meant.json`` lists the answers that differ on purpose, with the reason; each is a row of
docs/compatibility.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from conformance.recorded_models import write_repository
from conformance.replay_grpc import OWN, answer, load
from naiad.testing import RunningServer, serving
from support.served_transports import TRANSPORTS

HERE = Path(__file__).parent
GROUPS = ("describe", "infer", "errors", "types", "stream")
BROKEN = 'backend: "nonesuch"'

CASES = [case for group in GROUPS for case in load(group)]
MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant_grpc.json").read_text(encoding="utf-8"))


def start(folder: Path, transport: str, *options: str) -> Iterator[RunningServer]:
    models = ("--model-repository", folder / "models", "--disable-auto-complete-config")
    with serving(folder / "log", *models, "--grpc-transport", transport, *options) as running:
        yield running


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("recorded")
    write_repository(folder / "models")
    yield from start(folder, request.param)


@pytest.fixture(scope="module", params=TRANSPORTS)
def unready(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("unready")
    (folder / "models" / "broken" / "1").mkdir(parents=True)
    (folder / "models" / "broken" / "config.pbtxt").write_text(BROKEN)
    yield from start(folder, request.param, "--exit-on-error", "false")


def check(server: RunningServer, case: dict[str, Any]) -> None:
    expected = dict(MEANT.get(case["name"], case)["expect"])
    for key in OWN.get(case["path"].rpartition("/")[2], ()):
        expected["response"].pop(key, None)
    with grpc.insecure_channel(server.grpc_url) as channel:
        assert answer(channel, case) == expected


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in CASES])
def test_answer_is_the_recorded_one(server: RunningServer, case: dict[str, Any]) -> None:
    check(server, case)


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in load("unready")])
def test_answer_of_a_server_that_is_not_ready(unready: RunningServer, case: dict[str, Any]) -> None:
    check(unready, case)


def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    recorded = {case["name"]: case["expect"] for case in CASES}
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert recorded[name] != difference["expect"]
        assert f"| {difference['row']} |" in page, name
