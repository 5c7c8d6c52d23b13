"""Requests as they were sent to the reference server, and what it answered.

``cases/*.json`` hold them in the order they were sent. A recorded answer that blames the server for a malformed
request (500) stands there as ``malformed``: here it is 400 with a text of our own. ``meant.json`` lists the answers
that differ on purpose, with the reason; each is a row of docs/compatibility.md.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.recorded_models import write_repository
from server.running import Answer, RunningServer, serving

HERE = Path(__file__).parent
GROUPS = ("describe", "paths", "infer", "binary", "bad", "types", "metrics")
CHANGING = {"ns", "last_inference"}


def load(group: str) -> list[dict[str, Any]]:
    return list(json.loads((HERE / "cases" / f"{group}.json").read_text(encoding="utf-8")))


CASES = [(group, case) for group in GROUPS for case in load(group)]
MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("recorded")
    write_repository(folder / "models")
    with serving(folder / "log", "--model-repository", folder / "models", "--disable-auto-complete-config") as running:
        yield running


def send(server: RunningServer, group: str, case: dict[str, Any]) -> Answer:
    """Send a recorded request."""
    body = None
    if "text" in case:
        body = case["text"].encode() + base64.b64decode(case.get("tail", ""))
    port = server.metrics if group == "metrics" else 0
    return server.ask(case["method"], case["path"], body, [tuple(h) for h in case.get("headers", ())], port)


@pytest.mark.parametrize(("group", "case"), [pytest.param(g, c, id=c["name"]) for g, c in CASES])
def test_answer_is_the_recorded_one(server: RunningServer, group: str, case: dict[str, Any]) -> None:
    expected = MEANT.get(case["name"], case)["expect"]
    answer = send(server, group, case)
    assert (answer.status, answer.type) == (expected["status"], expected["type"]), answer.body
    if expected.get("malformed"):
        assert answer.error
    elif "text" in expected:
        assert expected["text"] in answer.error
    else:
        assert_same_body(answer, expected)
    assert answer.headers.get("connection") == expected.get("connection")


def assert_same_body(answer: Answer, expected: dict[str, Any]) -> None:
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


def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    names = {case["name"] for _, case in CASES}
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert name in names
        assert f"| {difference['row']} |" in page, name
