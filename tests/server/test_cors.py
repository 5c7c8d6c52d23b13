"""Answers that pages of other origins may read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from naiad.testing import HttpResponse, RunningServer, serving

PAGE = "https://page.example"
EXPOSED = "Inference-Header-Content-Length, inference-request-id, server-timing, Retry-After, WWW-Authenticate"
PREFLIGHT = (
    ("Access-Control-Request-Method", "POST"),
    ("Access-Control-Request-Headers", "authorization,content-type"),
)


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory):
    key = "page infer sha256:" + hashlib.sha256(b"key").hexdigest()
    options = ("--http-cors-origin", PAGE, "--http-cors-origin", "http://localhost:3000", "--api-key", key)
    with serving(tmp_path_factory.mktemp("log") / "log", models, *options) as running:
        yield running


def ask(
    server: RunningServer, method: str, path: str, *headers: tuple[str, str], body: bytes | None = None
) -> HttpResponse:
    return server.request(method, path, body, headers)


def cors_of(answer: HttpResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith(("access-control", "vary"))}


def test_a_page_may_ask_first_and_needs_no_key_for_that(server: RunningServer) -> None:
    answer = ask(server, "OPTIONS", "/v2/models/same/infer", ("Origin", PAGE), *PREFLIGHT)
    assert (answer.status, answer.body) == (200, b"")
    assert cors_of(answer) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "7200",
        "vary": "Origin",
    }


@pytest.mark.parametrize("names", ["", "a b", "x:y", "a,,b", '"q"'])
def test_names_of_headers_are_not_given_back_unseen(server: RunningServer, names: str) -> None:
    fields = (("Access-Control-Request-Method", "GET"), ("Access-Control-Request-Headers", names))
    answer = ask(server, "OPTIONS", "/v2", ("Origin", PAGE), *fields)
    assert answer.status == 200
    assert "access-control-allow-headers" not in answer.headers


def test_answers_may_be_read(server: RunningServer) -> None:
    body = b'{"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}'
    key = ("Authorization", "Bearer key")
    for _ in range(3):
        answer = ask(server, "POST", "/v2/models/same/infer", ("Origin", PAGE), key, body=body)
        assert answer.status == 200
        assert answer.json()["outputs"][0]["data"] == [1.0]
        assert cors_of(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": EXPOSED,
            "vary": "Origin",
        }
    refused = ask(server, "GET", "/v2", ("Origin", "http://localhost:3000"))
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "http://localhost:3000")
    missing = ask(server, "GET", "/v3", ("Origin", PAGE), key)
    assert (missing.status, missing.headers["access-control-allow-origin"]) == (404, PAGE)
    head = ask(server, "HEAD", "/v2", ("Origin", PAGE), key)
    assert (head.status, head.headers["access-control-allow-origin"], head.body) == (405, PAGE, b"")


@pytest.mark.parametrize("origin", ["https://other.example", PAGE + ":8443", PAGE + ".evil", "null", ""])
def test_other_pages_learn_nothing(server: RunningServer, origin: str) -> None:
    answer = ask(server, "GET", "/v2", ("Origin", origin), ("Authorization", "Bearer key"))
    assert answer.status == 200
    assert cors_of(answer) == {"vary": "Origin"}
    asked = ask(server, "OPTIONS", "/v2/models/same/infer", ("Origin", origin), *PREFLIGHT)
    assert asked.status == 401
    assert "access-control-allow-origin" not in asked.headers


def test_requests_without_an_origin_are_answered_as_ever(server: RunningServer) -> None:
    assert cors_of(ask(server, "GET", "/v2/health/ready")) == {}


def test_any_origin(tmp_path: Path, models: Path) -> None:
    with serving(tmp_path / "log", models, "--http-cors-origin=*") as server:
        answer = ask(server, "GET", "/v2", ("Origin", "https://whoever.example"))
        assert cors_of(answer)["access-control-allow-origin"] == "*"
        assert "vary" not in answer.headers


def test_off_by_default(tmp_path: Path, models: Path) -> None:
    with serving(tmp_path / "log", models) as server:
        assert cors_of(ask(server, "GET", "/v2", ("Origin", PAGE))) == {}
        assert ask(server, "OPTIONS", "/v2", ("Origin", PAGE), *PREFLIGHT).status == 405
