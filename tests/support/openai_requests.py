"""Requests to the API of OpenAI, and the parts of its responses."""

from __future__ import annotations

import json
from typing import Any

from naiad.testing import HttpResponse
from support.server_port import ServerPort, loaded

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def completion(port: ServerPort, prompt: object = "hello", model: str = "words", **more: object) -> HttpResponse:
    return port.post(COMPLETIONS, {"model": model, "prompt": prompt, **more})


def chat(port: ServerPort, text: object = "hello", model: str = "words", **more: object) -> HttpResponse:
    return port.post(CHAT, {"model": model, "messages": [{"role": "user", "content": text}], **more})


def choice(response: HttpResponse) -> Any:
    (found,) = loaded(response)["choices"]
    return found


def inputs_of(response: HttpResponse) -> dict[str, list[Any]]:
    """The inputs that a model was given which says them."""
    found = choice(response)
    text = found["text"] if "text" in found else found["message"]["content"]
    given: dict[str, list[Any]] = json.loads(text)
    return given


def sampling(response: HttpResponse) -> dict[str, Any]:
    """The sampling parameters that a model of the kind of vLLM was given."""
    found: dict[str, Any] = json.loads(inputs_of(response)["sampling_parameters"][0])
    return found


def events(response: HttpResponse) -> list[Any]:
    """The documents of a stream, whose end must be there."""
    assert (response.status, response.type) == (200, "text/event-stream"), response.body
    *lines, last, rest = response.body.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def refused(response: HttpResponse, status: int) -> str:
    """The text of an error, which both forms of it have."""
    assert response.status == status, response.body
    document = response.json()
    assert document["error"]["message"]
    if status != 422:
        assert document["detail"] == document["error"]["message"]
    return str(document["error"]["message"])
