"""Recorded gRPC calls: made to a server, and its answers given the form of the recorded ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from naiad.config.messages import message_class

CASES = Path(__file__).parent / "cases"
CALL_S = 20
# What is every server's own.
OWN = {"ServerMetadata": ("version", "extensions")}


def load(group: str) -> list[dict[str, Any]]:
    """The cases of a group, in the order in which they were sent."""
    return list(json.loads((CASES / f"grpc_{group}.json").read_text(encoding="utf-8")))


def encode(fields: dict[str, Any], name: str) -> bytes:
    """A message from its JSON form."""
    return bytes(json_format.ParseDict(fields, message_class(name)()).SerializeToString())


def decode(raw: bytes, method: str) -> dict[str, Any]:
    """The JSON form of a response, without what is every server's own."""
    answer = message_class(f"{method}Response").FromString(raw)
    found = dict(json_format.MessageToDict(answer, preserving_proto_field_name=True))
    for key in OWN.get(method, ()):
        assert found.pop(key)
    return found


def answer(channel: grpc.Channel, case: dict[str, Any]) -> dict[str, Any]:
    """Make a recorded call and give its answer the form of the recorded one."""
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
