"""The client of OpenAI as an independent peer."""

from __future__ import annotations

from typing import Any

import pytest

from support.openai_requests import WEATHER
from support.server_port import ServerPort

library = pytest.importorskip("openai")
HELLO = [{"role": "user", "content": "say one\nsay two"}]


@pytest.fixture(scope="module")
def client(openai: ServerPort) -> Any:
    return library.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{openai.number}/v1", max_retries=0)


def test_texts(client: Any) -> None:
    assert client.completions.create(model="words", prompt="say one").choices[0].text == "one"
    turn = client.chat.completions.create(model="words", messages=HELLO)
    assert (turn.choices[0].message.content, turn.usage.total_tokens) == ("onetwo", 4)


def test_streams(client: Any) -> None:
    parts = client.completions.create(model="words", prompt="say one\nsay two", stream=True)
    assert [part.choices[0].text for part in parts] == ["one", "two"]
    given = {"stream": True, "stream_options": {"include_usage": True}}
    *turns, last = client.chat.completions.create(model="words", messages=HELLO, **given)
    assert "".join(part.choices[0].delta.content for part in turns) == "onetwo"
    assert last.usage.completion_tokens == 2


def test_calls_of_tools(client: Any) -> None:
    content = 'say [TOOL_CALLS][{"name": "weather", \nsay "arguments": {"city": "Rome"}}]'
    given = {"model": "words", "messages": [{"role": "user", "content": content}], "tools": [WEATHER]}
    (call,) = client.chat.completions.create(**given).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Rome"}')
    with client.chat.completions.stream(**given) as stream:
        whole = stream.get_final_completion()
    (call,) = whole.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Rome"}')


def test_embeddings_and_models(client: Any) -> None:
    # The client itself asks for base64.
    assert client.embeddings.create(model="embedder", input="x").data[0].embedding[0] == 0.5
    assert "words" in [model.id for model in client.models.list()]
    assert client.models.retrieve("words").owned_by == "Triton Inference Server"


def test_errors(client: Any) -> None:
    with pytest.raises(library.BadRequestError, match="Unknown model: nobody"):
        client.completions.create(model="nobody", prompt="x")
    with pytest.raises(library.UnprocessableEntityError, match="less than or equal to 2"):
        client.completions.create(model="words", prompt="x", temperature=3)
    with pytest.raises(library.NotFoundError):
        client.models.retrieve("nobody")
    with pytest.raises(library.InternalServerError, match="no luck"):
        client.completions.create(model="words", prompt="say fail at once")
    parts = client.completions.create(model="words", prompt="say one\nsay fail", stream=True)
    with pytest.raises(library.APIError, match="no luck"):
        list(parts)
