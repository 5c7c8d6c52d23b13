"""The models that serve, their loading and unloading, readiness and metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.language_models import openai_served, write_language_models
from support.openai_requests import completion, refused, sampling
from support.server_port import ServerPort, loaded

MODELS = "/v1/models"


@pytest.fixture(scope="module")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPort]:
    models = write_language_models(tmp_path_factory.mktemp("models"))
    (models / "words" / "1" / "model.json").write_text(json.dumps({"enable_lora": "True"}))
    (models / "words" / "1" / "multi_lora.json").write_text(json.dumps({"pirate": "./a", "poet": "./b"}))
    (models / "talker" / "1" / "multi_lora.json").write_text(json.dumps({"unused": "./a"}))
    log = tmp_path_factory.mktemp("log") / "log"
    options = ("--model-control-mode=explicit", "--load-model=words", "--lora-separator=_lora_")
    with openai_served(log, models, *options) as port:
        yield port


def names(port: ServerPort) -> list[str]:
    document = loaded(port.get(MODELS))
    assert document["object"] == "list"
    return [one["id"] for one in document["data"]]


def test_the_models_that_serve(openai: ServerPort) -> None:
    assert names(openai) == ["embedder", "same", "talker", "words"]
    found = loaded(openai.get(f"{MODELS}/words"))
    assert found.pop("created") > 1_700_000_000
    assert found == {"id": "words", "object": "model", "owned_by": "Triton Inference Server"}
    assert refused(openai.get(f"{MODELS}/nobody"), 404) == "Unknown model: nobody"


def test_a_server_that_loads_on_its_own_takes_no_orders(openai: ServerPort) -> None:
    for verb in ("load", "unload"):
        assert "requires --model-control-mode=explicit" in refused(openai.post(f"{MODELS}/words/{verb}", b""), 400)


def test_models_come_and_go(explicit: ServerPort) -> None:
    path = f"{MODELS}/talker"
    assert refused(completion(explicit, model="talker"), 400) == "Unknown model: talker"
    assert loaded(explicit.post(f"{path}/load", b""))["id"] == "talker"
    assert "already loaded" in refused(explicit.post(f"{path}/load", b""), 400)
    assert "talker" in names(explicit)
    assert completion(explicit, model="talker").status == 200
    assert loaded(explicit.post(f"{path}/unload", b"")) == {"status": "success", "model": "talker"}
    assert refused(explicit.post(f"{path}/unload", b""), 400) == "Unknown model: talker"
    assert "failed to poll from model repository" in refused(explicit.post(f"{MODELS}/nobody/load", b""), 500)
    assert refused(explicit.get(path), 404) == "Unknown model: talker"


def test_of_several_loads_at_once_one_is_done(explicit: ServerPort) -> None:
    path = f"{MODELS}/embedder"
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda _: explicit.post(f"{path}/load", b""), range(4)))
    done, *others = sorted(responses, key=lambda response: response.status)
    assert loaded(done)["id"] == "embedder"
    assert {refused(other, 400) for other in others} == {"Model 'embedder' is already loaded"}
    assert explicit.server.log.count("successfully loaded 'embedder'") == 1
    assert loaded(explicit.post(f"{path}/unload", b""))


@pytest.mark.parametrize("name", ["..", "%20"])
def test_a_name_that_no_model_has(explicit: ServerPort, name: str) -> None:
    assert "Failed to load model" in refused(explicit.post(f"{MODELS}/{name}/load", b""), 400)
    assert "Unknown model" in refused(explicit.post(f"{MODELS}/{name}/unload", b""), 400)


def test_adapters_are_listed_behind_their_model(explicit: ServerPort) -> None:
    assert names(explicit) == ["words", "words_lora_pirate", "words_lora_poet"]
    assert loaded(explicit.get(f"{MODELS}/words_lora_poet"))["id"] == "words_lora_poet"


def test_an_adapter_that_its_model_does_not_have(explicit: ServerPort) -> None:
    assert sampling(completion(explicit, model="words_lora_poet"))["lora_name"] == "poet"
    assert refused(completion(explicit, model="words_lora_x"), 400) == "Unknown LoRA: x; for model: words_lora_x"


def test_a_chat_without_a_tokenizer(explicit: ServerPort) -> None:
    given = {"model": "words", "messages": [{"role": "user", "content": "hello"}]}
    assert refused(explicit.post("/v1/chat/completions", given), 500) == "Unknown tokenizer"


def test_readiness_and_metrics(openai: ServerPort) -> None:
    ready = openai.get("/health/ready")
    assert (ready.status, ready.body) == (200, b"")
    page = openai.get("/metrics")
    assert page.status == 200
    assert b'nv_inference_request_success{model="words",version="1"}' in page.body


def test_paths_and_methods_that_are_none(openai: ServerPort) -> None:
    assert refused(openai.get("/v1/nothing"), 404) == "Not Found"
    assert refused(openai.get("/v2"), 404) == "Not Found"
    for method, path, allowed in (
        ("GET", "/v1/completions", "POST"),
        ("POST", MODELS, "GET"),
        ("DELETE", f"{MODELS}/words", "GET"),
        ("GET", f"{MODELS}/words/load", "POST"),
        ("POST", "/health/ready", "GET"),
    ):
        response = openai.request(method, path)
        assert refused(response, 405) == "Method Not Allowed"
        assert response.headers["allow"] == allowed
