"""Chats: prompts by the tokenizer's template, turns, calls of tools, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.openai_requests import CHAT, WEATHER, chat, choice, inputs_of, refused, sampling
from support.server_port import ServerPort, loaded

NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


def prompt_of(port: ServerPort, *messages: dict[str, Any], **more: object) -> str:
    """The prompt that a model is given for these messages."""
    (found,) = inputs_of(port.post(CHAT, {"model": "words", "messages": list(messages), **more}))["text_input"]
    return str(found)


def test_a_turn(openai: ServerPort) -> None:
    found = loaded(chat(openai, "say one\nsay two"))
    assert found.pop("id").startswith("cmpl-")
    assert found.pop("created") > 0
    turn = {"role": "assistant", "content": "onetwo", "tool_calls": None, "function_call": None}
    assert found == {
        "object": "chat.completion",
        "model": "words",
        "system_fingerprint": None,
        "choices": [{"index": 0, "message": turn, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }


def test_the_prompt_is_made_by_the_template(openai: ServerPort) -> None:
    parts = [{"type": "text", "text": "two"}, {"type": "text", "text": "lines"}]
    answer = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
    found = prompt_of(
        openai,
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": parts, "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        answer,
    )
    # The arguments of a call are an object for templates.
    asked = '[assistant] None weather({"city": "Rome"})'
    assert found == f"<s>[system] be kind\n[user] two\nlines\n{asked}\n[tool] rain\n[assistant] "


def test_tools_are_in_the_prompt(openai: ServerPort) -> None:
    found = prompt_of(openai, {"role": "user", "content": "hello"}, tools=[WEATHER])
    assert json.dumps([WEATHER]) in found


def test_the_parameters_of_a_chat(openai: ServerPort) -> None:
    found = sampling(chat(openai, max_tokens=5))
    assert (found["temperature"], found["max_tokens"]) == (0.7, 5)
    assert sampling(chat(openai, max_tokens=5, max_completion_tokens=6))["max_tokens"] == 6
    assert sampling(chat(openai, logprobs=True))["logprobs"] == 1
    assert sampling(chat(openai, logprobs=True, top_logprobs=0))["logprobs"] == 0


def test_logprobs(openai: ServerPort) -> None:
    found = choice(chat(openai, "say one", logprobs=True, top_logprobs=2))
    (token,) = found["logprobs"]["content"]
    assert (token["token"], [one["logprob"] for one in token["top_logprobs"]]) == ("a", [-0.5, -1.5])


def test_calls_that_the_model_makes(openai: ServerPort) -> None:
    text = 'say [TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]'
    for tool_choice in ({}, {"tool_choice": "auto"}):
        found = choice(chat(openai, text, tools=[WEATHER], **tool_choice))
        (call,) = found["message"]["tool_calls"]
        # Templates of Mistral's models take no other ids.
        assert re.fullmatch("[a-zA-Z0-9]{9}", call["id"])
        assert (call["type"], call["function"]["name"]) == ("function", "weather")
        assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
        assert found["finish_reason"] == "tool_calls"
    for no_calls in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        found = choice(chat(openai, text, **no_calls))
        assert found["message"]["content"] == text.removeprefix("say ")
        assert (found["message"]["tool_calls"], found["finish_reason"]) == (None, "stop")


@pytest.mark.parametrize("tool_choice", [NAMED, "required"])
def test_a_call_that_is_forced(openai: ServerPort, tool_choice: object) -> None:
    found = choice(chat(openai, 'say {"city": "Rome"}', tools=[WEATHER], tool_choice=tool_choice))
    (call,) = found["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert found["finish_reason"] == "stop"


def test_what_a_text_has_to_fit(openai: ServerPort) -> None:
    schema = WEATHER["function"]["parameters"]  # type: ignore[index]

    def wanted(**more: object) -> object:
        # A forced call has the inputs as its arguments.
        response = openai.post(CHAT, {"model": "words", "messages": [{"role": "user", "content": "x"}], **more})
        turn = choice(response)["message"]
        text = turn["content"] or turn["tool_calls"][0]["function"]["arguments"]
        return json.loads(json.loads(json.loads(text)["sampling_parameters"][0])["structured_outputs"])

    assert wanted(tools=[WEATHER], tool_choice=NAMED) == {"json": schema}
    as_schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    assert wanted(response_format=as_schema) == {"json": schema}
    assert wanted(response_format={"type": "json_object"}) == {"json_object": True}
    assert "structured_outputs" not in sampling(chat(openai, response_format={"type": "text"}))
    found = inputs_of(chat(openai, model="talker", response_format=as_schema))
    assert found["guided_decoding_guide_type"] == ["json_schema"]
    assert json.loads(found["guided_decoding_guide"][0]) == schema


@pytest.mark.parametrize("model", ["words", "talker"])
def test_a_schema_that_is_nested_too_deep_to_be_told(openai: ServerPort, model: str) -> None:
    schema: dict[str, Any] = {}
    for _ in range(400):
        schema = {"a": schema}
    tool = {"type": "function", "function": {"name": "deep", "parameters": schema}}
    assert "nested too deep" in refused(chat(openai, model=model, tools=[tool], tool_choice="required"), 400)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"n": 3}, "only single choice (n=1)"),
        ({"logit_bias": {}}, "logit bias is not currently supported"),
        ({"top_logprobs": 2}, "`top_logprobs` can only be used when `logprobs` is True"),
        ({"tool_choice": "required"}, '"required" tool choice requires CreateChatCompletionRequest.tools'),
        ({"tool_choice": NAMED}, "Named tool choice requires CreateChatCompletionRequest.tools"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "Tool 'other' has not been passed in `tools`.",
        ),
        ({"stream_options": {}, "stream": False}, None),
        ({"model": "nobody"}, "Unknown model: nobody"),
        ({"model": "talker", "logprobs": True}, "only for the vLLM backend"),
        ({"model": "same"}, "it has no input 'text_input'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "only text message is supported, but got image_url",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": "{"}}],
                    }
                ]
            },
            "the arguments of the call 'c1' are no JSON",
        ),
    ],
)
def test_what_cannot_be_had(openai: ServerPort, more: dict[str, object], text: str | None) -> None:
    response = openai.post(CHAT, {"model": "words", "messages": [{"role": "user", "content": "hello"}], **more})
    if text is None:
        assert response.status == 200
    else:
        assert text in refused(response, 400)


@pytest.mark.parametrize(
    ("more", "place", "text"),
    [
        ({"messages": []}, ["messages"], "List should have at least 1 item after validation, not 0"),
        ({"messages": [{}]}, ["messages", 0, "role"], "Field required"),
        ({"messages": ["x"]}, ["messages", 0], "Input should be a valid dictionary"),
        ({"messages": [{"role": "user"}]}, ["messages", 0, "content"], "Field required"),
        ({"messages": [{"role": "judge", "content": "x"}]}, ["messages", 0, "role"], "Input should be 'system',"),
        ({"messages": [{"role": "tool", "content": "x"}]}, ["messages", 0, "tool_call_id"], "Field required"),
        ({"messages": [{"role": "user", "content": 5}]}, ["messages", 0, "content"], "valid string"),
        ({"messages": [{"role": "user", "content": [{}]}]}, ["messages", 0, "content", 0, "type"], "Field required"),
        ({"top_logprobs": 21}, ["top_logprobs"], "Input should be less than or equal to 20"),
        ({"tools": [{"type": "function"}]}, ["tools", 0, "function"], "Field required"),
        ({"tools": [{"type": "x", "function": {"name": "f"}}]}, ["tools", 0, "type"], "Input should be 'function'"),
        ({"tool_choice": "maybe"}, ["tool_choice"], "Input should be 'none', 'auto' or 'required'"),
        ({"response_format": {"type": "xml"}}, ["response_format", "type"], "Input should be 'text', 'json_object'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": 5}}},
            ["response_format", "json_schema", "schema"],
            "Input should be a valid dictionary",
        ),
        ({"stop": ["a", 1]}, ["stop", 1], "Input should be a valid string"),
    ],
)
def test_members_that_are_wrong(openai: ServerPort, more: dict[str, object], place: list[object], text: str) -> None:
    response = openai.post(CHAT, {"model": "words", "messages": [{"role": "user", "content": "hello"}], **more})
    refused(response, 422)
    (found,) = response.json()["detail"]
    assert found["loc"] == ["body", *place]
    assert text in found["msg"]
