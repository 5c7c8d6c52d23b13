"""The messages of a chat, checked, and as the templates of tokenizers want them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from naiad.errors import InvalidArgumentError, MalformedRequestError
from naiad.wire.json_text import load_json
from naiad.wire.openai.schema import (
    Member,
    Place,
    Problem,
    array_of,
    object_of,
    one_of,
    problems_of,
    text,
)

_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_PART: Final = object_of({"type": Member(text, is_required=True)})


def _content(value: Any, place: Place) -> Iterator[Problem]:
    yield from array_of(_PART)(value, place) if isinstance(value, list) else text(value, place)


_FUNCTION: Final = object_of({"name": Member(text, is_required=True), "arguments": Member(text, is_required=True)})
_CALL: Final = object_of(
    {
        "id": Member(text, is_required=True),
        "type": Member(one_of("function"), is_required=True),
        "function": Member(_FUNCTION, is_required=True),
    }
)
_MESSAGE: Final[Mapping[str, Member]] = {
    "role": Member(one_of(*_ROLES), is_required=True),
    "content": Member(_content),
    "name": Member(text),
    "tool_call_id": Member(text),
    "tool_calls": Member(array_of(_CALL)),
}


def message(value: Any, place: Place) -> Iterator[Problem]:
    """A message of a chat; members of other kinds are not looked at."""
    if not isinstance(value, dict):
        yield Problem("dict_type", place, "Input should be a valid dictionary")
        return
    problems = list(problems_of(value, _MESSAGE, place))
    if problems:
        yield from problems
        return
    if value["role"] == "tool" and value.get("tool_call_id") is None:
        yield Problem("missing", (*place, "tool_call_id"), "Field required")
    # A turn of the model may be nothing but calls of tools.
    if value.get("content") is None and value["role"] != "assistant":
        yield Problem("missing", (*place, "content"), "Field required")


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Checked messages as a template gets them.

    Raises:
        InvalidArgumentError: a part of a content is no text, or the arguments of a call are no JSON.
    """
    return [_turn(given) for given in messages]


def _turn(given: Mapping[str, Any]) -> dict[str, Any]:
    role = given["role"]
    # OpenAI's newer name for it, which templates do not know.
    turn = {"role": "system" if role == "developer" else role, "content": _text_of(given.get("content"))}
    if role == "assistant" and given.get("tool_calls"):
        turn["tool_calls"] = [_call(call) for call in given["tool_calls"]]
    if role == "tool":
        turn["tool_call_id"] = given["tool_call_id"]
    if given.get("name") is not None:
        turn["name"] = given["name"]
    return turn


def _text_of(content: Any) -> str | None:
    """The text of a message: that of its parts in lines, since few templates know parts."""
    if not isinstance(content, list):
        return None if content is None else str(content)
    for part in content:
        if part["type"] != "text":
            raise InvalidArgumentError(f"only text message is supported, but got {part['type']}")
        if not isinstance(part.get("text"), str):
            raise InvalidArgumentError("a part of a content has the type 'text', but no text in its member 'text'")
    return "\n".join(part["text"] for part in content)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        # Templates write the arguments themselves.
        arguments = load_json(function["arguments"].encode())
    except MalformedRequestError as error:
        raise InvalidArgumentError(f"the arguments of the call '{call['id']}' are no JSON: {error}") from None
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": arguments}}
