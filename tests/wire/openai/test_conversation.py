"""Messages of a chat: which are refused, and what templates get."""

from __future__ import annotations

from typing import Any

import pytest

from naiad.errors import InvalidArgumentError
from naiad.wire.openai.conversation import conversation, message

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "[1]"}}


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
def test_an_empty_content_is_one(content: object) -> None:
    given = {"role": "user", "content": content}
    assert list(message(given, ())) == []
    assert conversation([given]) == [{"role": "user", "content": ""}]


def test_the_model_may_say_nothing() -> None:
    for given in ({"role": "assistant"}, {"role": "assistant", "content": None, "tool_calls": []}):
        assert list(message(given, ())) == []
        assert conversation([given]) == [{"role": "assistant", "content": None}]


def test_members_of_other_roles_are_left_out() -> None:
    given = {"role": "user", "content": "x", "tool_calls": [CALL], "tool_call_id": "c1", "refusal": None}
    assert list(message(given, ())) == []
    assert conversation([given]) == [{"role": "user", "content": "x"}]


def test_each_call_is_checked() -> None:
    given = {"role": "assistant", "tool_calls": [CALL, {**CALL, "function": {"name": 5}}, "x"]}
    found = [(problem.kind, problem.place) for problem in message(given, ("messages", 0))]
    inner = ("messages", 0, "tool_calls", 1, "function")
    assert found == [
        ("string_type", (*inner, "name")),
        ("missing", (*inner, "arguments")),
        ("dict_type", ("messages", 0, "tool_calls", 2)),
    ]


@pytest.mark.parametrize("part", [{"type": "text"}, {"type": "text", "text": 5}])
def test_a_part_without_its_text(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="no text in its member 'text'"):
        conversation([{"role": "user", "content": [part]}])
