"""The body of a chat: which call is forced, and who chooses."""

from __future__ import annotations

import json

import pytest

from naiad.wire.openai.chat_request import ChatRequest, read_chat


def request(**more: object) -> ChatRequest:
    given = {"model": "m", "messages": [{"role": "user", "content": "x"}], **more}
    return read_chat(json.dumps(given).encode())


def tool(name: str, **more: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "strict": True, **more}}


def test_a_required_call_is_one_of_the_first_tool() -> None:
    found = request(tools=[tool("f", parameters={"a": 1}), tool("g")], tool_choice="required")
    assert (found.forced, found.forced_parameters, found.may_call) == ("f", {"a": 1}, False)


def test_a_named_call() -> None:
    found = request(tools=[tool("f"), tool("g")], tool_choice={"type": "function", "function": {"name": "g"}})
    # Without parameters any arguments fit.
    assert (found.forced, found.forced_parameters, found.may_call) == ("g", {}, False)


@pytest.mark.parametrize(("choice", "may_call"), [(None, True), ("auto", True), ("none", False)])
def test_the_model_chooses(choice: object, may_call: bool) -> None:
    assert request(tools=[tool("f")], tool_choice=choice).may_call is may_call
    # Without tools there is nothing to choose from.
    assert not request(tools=[], tool_choice=choice).may_call


def test_the_most_tokens_may_be_none() -> None:
    assert request().sampling.max_tokens is None
    assert request(max_completion_tokens=0, max_tokens=5).sampling.max_tokens == 0


def test_texts_before_which_to_stop() -> None:
    assert request().sampling.stop == []
    assert request(stop="a").sampling.stop == ["a"]
    assert request(stop=["a", "b"]).sampling.stop == ["a", "b"]
