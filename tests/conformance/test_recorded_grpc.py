"""gRPC calls as they were made to the reference server, and what it answered, over both transports.

``cases/grpc_*.json`` hold the messages in protobuf's JSON form (``raw``: as bytes in base64, and the answer as well).
The platform of models is that of our stand-ins. The cases of ``grpc_unready`` were recorded while the server was not
ready. ``meant.json`` lists the answers that differ on purpose, with the reason; each is a row of
docs/compatibility.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from conformance.recorded_models import write_repository
from naiad.config.messages import message_class
from server.running import RunningServer, serving

HERE = Path(__file__).parent
GROUPS = ("describe", "infer", "errors", "types", "stream")
TRANSPORTS = ("naiad", "grpcio")
CALL_S = 20
# What is every server's own.
OWN = {"ServerMetadata": ("version", "extensions")}
BROKEN = 'backend: "nonesuch"'


def load(group: str) -> list[dict[str, Any]]:
    return list(json.loads((HERE / "cases" / f"grpc_{group}.json").read_text(encoding="utf-8")))


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


def encode(fields: dict[str, Any], name: str) -> bytes:
    return bytes(json_format.ParseDict(fields, message_class(name)()).SerializeToString())


def decode(raw: bytes, method: str) -> dict[str, Any]:
    answer = message_class(f"{method}Response").FromString(raw)
    found = dict(json_format.MessageToDict(answer, preserving_proto_field_name=True))
    for key in OWN.get(method, ()):
        assert found.pop(key)
    return found


def answer(channel: grpc.Channel, case: dict[str, Any]) -> dict[str, Any]:
    """Send a recorded call and give its answer the form of the recorded one."""
    method = case["path"].rpartition("/")[2]
    try:
        if "requests" in case:
            sent = [encode(r, "ModelInferRequest") for r in case["requests"]]
            call = channel.stream_stream(case["path"])(iter(sent), timeout=CALL_S)
            return {"status": "OK", "responses": [decode(raw, method) for raw in call]}
        unary = channel.unary_unary(case["path"])
        if "raw" in case:
            found = unary(base64.b64decode(case["raw"]), timeout=CALL_S)
            return {"status": "OK", "response": base64.b64encode(found).decode()}
        return {
            "status": "OK",
            "response": decode(unary(encode(case["request"], f"{method}Request"), timeout=CALL_S), method),
        }
    except grpc.RpcError as error:
        return {"status": error.code().name, "details": error.details()}


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
