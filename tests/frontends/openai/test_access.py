"""Who may use the API: restricted parts, API keys, pages of other sites; and front-end processes beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.testing import request_bytes, start_server
from support.api_keys import hashed
from support.language_models import OPENAI, openai_served
from support.openai_requests import COMPLETIONS, completion, events, refused
from support.server_port import ServerPort

GIVEN = {"model": "talker", "prompt": "say one"}


@pytest.fixture(scope="module")
def restricted(language_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPort]:
    rules = (
        "--openai-restricted-api=inference,model-repository api-key secret",
        "--openai-restricted-api=metrics X-Metrics seen",
    )
    with openai_served(tmp_path_factory.mktemp("log") / "log", language_models, *rules) as port:
        yield port


def test_restricted_parts_need_their_header(restricted: ServerPort) -> None:
    for header in ({}, {"api-key": "other"}, {"X-Metrics": "seen"}):
        response = restricted.post(COMPLETIONS, GIVEN, header)
        assert "expecting header 'api-key'" in refused(response, 401)
        assert response.json()["error"]["type"] == "authentication_error"
        assert restricted.get("/v1/models", header).status == 401
    assert restricted.post(COMPLETIONS, GIVEN, {"api-key": "secret"}).status == 200
    assert restricted.get("/v1/models/talker", {"api-key": "secret"}).status == 200
    assert restricted.get("/metrics").status == 401
    assert restricted.get("/metrics", {"X-Metrics": "seen"}).status == 200
    assert restricted.get("/health/ready").status == 200


def test_api_keys_are_those_of_openai_clients(language_models: Path, tmp_path: Path) -> None:
    keys = tuple(f"--api-key={name} {name} {hashed(name)}" for name in ("infer", "observe"))
    with openai_served(tmp_path / "log", language_models, *keys) as port:
        assert port.post(COMPLETIONS, GIVEN, {"Authorization": "Bearer infer"}).status == 200
        response = port.post(COMPLETIONS, GIVEN)
        assert "an API key is needed" in refused(response, 401)
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert "infer is needed" in refused(port.post(COMPLETIONS, GIVEN, {"Authorization": "Bearer observe"}), 403)
        assert port.get("/health/ready").status == 200


def test_pages_of_other_sites_load_no_models(openai: ServerPort) -> None:
    page = {"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}
    assert "a page of another site" in refused(openai.post("/v1/models/words/unload", b"", page), 403)
    assert openai.post(COMPLETIONS, GIVEN, page).status == 200


def test_a_key_that_is_used_too_often(language_models: Path, tmp_path: Path) -> None:
    with openai_served(tmp_path / "log", language_models, f"--api-key=a infer {hashed('a')} rate=0.01") as port:
        key = {"Authorization": "Bearer a"}
        assert port.post(COMPLETIONS, GIVEN, key).status == 200
        response = port.post(COMPLETIONS, GIVEN, key)
        assert "beyond its limit" in refused(response, 429)
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert int(response.headers["retry-after"]) > 1


def test_what_the_connection_refuses(language_models: Path, tmp_path: Path) -> None:
    with openai_served(tmp_path / "log", language_models, "--http-max-input-size=100") as port:
        response = port.post(COMPLETIONS, b"x" * 101)
        assert "Use --http-max-input-size to increase the limit." in refused(response, 413)
        assert response.json()["error"]["code"] == "content_too_large"
        assert refused(port.request("POST", COMPLETIONS, None, {"Content-Length": "-1"}), 400)


def test_a_large_body_without_room_is_not_waited_for(language_models: Path, tmp_path: Path) -> None:
    with openai_served(tmp_path / "log", language_models, "--max-in-flight-bytes=1000000") as port:
        body = json.dumps({"model": "words", "prompt": "say one\nsay wait\n" + "x" * 700_000, "stream": True}).encode()
        with port.server.connect(port.number) as held, port.server.connect(port.number) as late:
            held.sendall(request_bytes("POST", COMPLETIONS, body))
            assert held.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
            late.sendall(request_bytes("POST", COMPLETIONS, body, [("Expect", "100-continue")])[:-700_000])
            assert late.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


@pytest.mark.slow
def test_beside_front_end_processes(language_models: Path, tmp_path: Path) -> None:
    with openai_served(tmp_path / "log", language_models, "--frontend-processes=2") as port:
        assert completion(port, "say one").status == 200
        assert len(events(completion(port, "say one\nsay two", stream=True))) == 2
        assert b'model="words"' in port.get("/metrics").body
        # Of all front ends, as over the other ports.
        assert port.server.statistics("words")["inference_count"] == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--tokenizer=/nowhere"], "--tokenizer: there is no folder '/nowhere'"),
        (["--chat-template=/nowhere.jinja"], "--chat-template: '/nowhere.jinja' cannot be read"),
        (["--openai-restricted-api=inference key"], "expected three words"),
        (["--openai-restricted-api=inferences key value"], "Unknown API 'inferences'"),
        (
            ["--openai-restricted-api=inference k v", "--openai-restricted-api=inference,health k v"],
            "can not be specified in multiple config groups",
        ),
        (["--tool-call-parser=pythonic"], "llama3"),
        (["--openai-port=70000"], "70000"),
    ],
)
def test_options_that_cannot_be_used(language_models: Path, tmp_path: Path, options: list[str], text: str) -> None:
    server = start_server(tmp_path / "log", language_models, *OPENAI, *options)
    try:
        assert server.wait_exit() == 1
        assert text in server.log
    finally:
        server.kill()
