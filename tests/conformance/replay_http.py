"""Recorded HTTP requests: sent to a server, and its answers compared."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import math
import zlib
from pathlib import Path
from typing import Any

from naiad.testing import HttpResponse, RunningServer

CASES = Path(__file__).parent / "cases"
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}
CHANGING = {"ns", "last_inference"}


def load(group: str) -> list[dict[str, Any]]:
    """The cases of a group, in the order in which they were sent."""
    return list(json.loads((CASES / f"{group}.json").read_text(encoding="utf-8")))


def send(server: RunningServer, case: dict[str, Any], port: int = 0) -> HttpResponse:
    """Send a recorded request to the HTTP port, or to ``port``."""
    body = None
    if "body" in case:
        body = base64.b64decode(case["body"])
    elif "text" in case:
        body = case["text"].encode() + base64.b64decode(case.get("tail", ""))
    return server.request(case["method"], case["path"], body, [tuple(h) for h in case.get("headers", ())], port)


def assert_answer(answer: HttpResponse, expected: dict[str, Any]) -> None:
    """Check an answer against the recorded one, or against the one that is meant instead of it."""
    assert (answer.status, answer.type) == (expected["status"], expected["type"]), answer.body
    assert answer.headers.get("content-encoding") == expected.get("coding")
    if "coding" in expected:
        answer = dataclasses.replace(answer, body=UNPACK[expected["coding"]](answer.body))
    if expected.get("malformed"):
        assert answer.error
    elif "text" in expected:
        assert expected["text"] in answer.error
    else:
        assert_same_body(answer, expected)
    assert answer.headers.get("connection") == expected.get("connection")


def assert_same_body(answer: HttpResponse, expected: dict[str, Any]) -> None:
    """Check the JSON and the bytes behind it."""
    if "json" not in expected:
        assert answer.body == base64.b64decode(expected.get("body", ""))
        return
    found = answer.json()
    assert same(expected["json"], found), f"expected {expected['json']}\nfound    {found}"
    length = answer.headers.get("inference-header-content-length")
    tail = b"" if length is None else answer.body[int(length) :]
    assert tail == base64.b64decode(expected.get("tail", ""))


def same(expected: Any, found: Any, key: str = "") -> bool:
    """Whether two JSON values are equal, but for times; objects keep their order of keys only where lists do."""
    if key in CHANGING:
        return isinstance(found, int)
    if key == "memory_usage":
        # The reference shows nothing for its backends; here it is measured.
        return all(usage["type"] == "CPU" and usage["byte_size"] > 0 for usage in found)
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and expected.keys() == found.keys()
            and all(same(v, found[k], k) for k, v in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(expected) == len(found)
            and all(same(a, b) for a, b in zip(expected, found, strict=True))
        )
    if isinstance(expected, float):
        return isinstance(found, float) and math.isclose(expected, found, rel_tol=1e-6)
    return type(expected) is type(found) and bool(expected == found)
