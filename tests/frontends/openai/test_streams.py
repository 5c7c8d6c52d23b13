"""Texts in parts, as events: their documents, their errors, and callers that leave."""

from __future__ import annotations

import json

from naiad.testing import request_bytes, wait_until
from support.openai_requests import CHAT, COMPLETIONS, WEATHER, chat, completion, events, refused
from support.server_port import ServerPort


def test_a_completion_in_parts(openai: ServerPort) -> None:
    found = events(completion(openai, "say one\nsay two", stream=True))
    assert {document["object"] for document in found} == {"text_completion"}
    assert len({(document["id"], document["created"]) for document in found}) == 1
    parts = [(document["choices"][0]["text"], document["choices"][0]["finish_reason"]) for document in found]
    assert parts == [("one", None), ("two", "stop")]


def test_a_turn_in_parts(openai: ServerPort) -> None:
    first, *found = events(chat(openai, "say one\nsay two length", stream=True))
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "function_call": None}
    parts = [(document["choices"][0]["delta"], document["choices"][0]["finish_reason"]) for document in found]
    assert parts == [({"content": "one"}, None), ({"content": "two length"}, "length")]


def test_the_numbers_of_tokens_at_the_end(openai: ServerPort) -> None:
    for send in (completion, chat):
        *parts, last = events(send(openai, "say one\nsay two", stream=True, stream_options={"include_usage": True}))
        assert all(part["usage"] is None for part in parts)
        assert last["choices"] == []
        assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    # A model that does not count them.
    given = {"stream": True, "stream_options": {"include_usage": True}}
    assert all(part["choices"] for part in events(completion(openai, "say one", "talker", **given)))


def test_logprobs_in_parts(openai: ServerPort) -> None:
    found = events(completion(openai, "say one\nsay two", stream=True, logprobs=1))
    assert [document["choices"][0]["logprobs"]["text_offset"] for document in found] == [[0], [3]]
    _, part = events(chat(openai, "say one", stream=True, logprobs=True, top_logprobs=2))
    (token,) = part["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["logprob"], token["bytes"]) == ("a", -0.5, [97])
    assert [one["token"] for one in token["top_logprobs"]] == ["a", "b"]


def test_calls_of_tools_in_parts(openai: ServerPort) -> None:
    text = '[TOOL_CALLS][{"name": "weather", \nsay "arguments": {"city": \nsay "Rome"}}]'
    _, *found = events(chat(openai, f"say {text}", stream=True, tools=[WEATHER]))
    calls = [call for document in found for call in document["choices"][0]["delta"].get("tool_calls", ())]
    assert calls[0]["id"]
    assert (calls[0]["type"], calls[0]["function"]["name"]) == ("function", "weather")
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Rome"}
    assert {call["index"] for call in calls} == {0}
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    # Without tools it is a text as any other.
    _, *plain = events(chat(openai, f"say {text}", stream=True))
    assert "".join(document["choices"][0]["delta"]["content"] for document in plain) == text.replace("\nsay ", "")


def test_a_forced_call_in_parts(openai: ServerPort) -> None:
    given = {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    _, one, two = events(chat(openai, 'say {"city": \nsay "Rome"}', stream=True, **given))
    (call,), (rest,) = (document["choices"][0]["delta"]["tool_calls"] for document in (one, two))
    assert call["function"] == {"name": "weather", "arguments": '{"city": '}
    assert rest["function"] == {"arguments": '"Rome"}'}
    assert two["choices"][0]["finish_reason"] == "stop"


def test_a_text_that_is_too_long_to_look_for_calls_is_cut(openai: ServerPort) -> None:
    text = '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "' + "\nsay ".join("x" * 100 for _ in range(4))
    *_, last = events(chat(openai, f"say {text}\nsay wait", stream=True, tools=[WEATHER]))
    assert last["choices"][0]["finish_reason"] == "length"
    # The model is told, else it would wait for ever.
    openai.server.wait_for("seen to be cancelled")


def test_an_error_before_the_first_part_has_a_status(openai: ServerPort) -> None:
    for send in (completion, chat):
        assert "no luck" in refused(send(openai, "say fail at once", stream=True), 500)


def test_an_error_behind_the_first_part_is_an_event(openai: ServerPort) -> None:
    *parts, last = events(completion(openai, "say one\nsay fail", stream=True))
    assert [part["choices"][0]["text"] for part in parts] == ["one"]
    assert "no luck" in last["error"]["message"]


def test_a_caller_that_leaves_cancels_its_request(openai: ServerPort) -> None:
    before = openai.server.log.count("seen to be cancelled")
    for path, given in (
        (COMPLETIONS, {"prompt": "say one\nsay wait"}),
        (CHAT, {"messages": [{"role": "user", "content": "say one\nsay wait"}]}),
    ):
        with openai.server.connect(openai.number) as connection:
            body = json.dumps({"model": "words", "stream": True, **given}).encode()
            connection.sendall(request_bytes("POST", path, body))
            received = b""
            while b"one" not in received:
                received += connection.recv(1 << 16)
    wait_until(lambda: openai.server.log.count("seen to be cancelled") >= before + 2, 10, "two cancelled requests")
