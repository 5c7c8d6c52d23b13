"""Ids of calls, and errors, as documents have them."""

from __future__ import annotations

from naiad.wire.openai.documents import call_id, chat_choice, chat_part, error_document
from naiad.wire.openai.tool_calls.calls import CallDelta, ToolCall


def test_each_call_has_an_id_of_its_own() -> None:
    assert len({call_id(response, index) for response in ("cmpl-1", "cmpl-2") for index in range(3)}) == 6


def test_a_call_has_the_same_id_in_parts_as_in_a_whole_turn() -> None:
    turn = chat_choice("", (ToolCall("f", "{}"), ToolCall("g", "{}")), "tool_calls", None, "cmpl-1")
    part = chat_part(None, (CallDelta(1, "g", ""), CallDelta(1, None, "{}")), "", None, "cmpl-1")
    first, rest = part["delta"]["tool_calls"]
    assert first["id"] == turn["message"]["tool_calls"][1]["id"]
    # It is said once.
    assert rest == {"index": 1, "function": {"arguments": "{}"}}
    assert part["finish_reason"] is None


def test_the_detail_of_an_error_is_its_message_unless_there_is_more() -> None:
    assert error_document("no", "server_error")["detail"] == "no"
    assert error_document("no", "server_error", detail=[])["detail"] == []
