"""The JSON documents of responses: whole texts and parts of them, as completions and as turns of a chat.

Source: OpenAI's API and the reference, members without a value included.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from naiad.wire.openai.generated import TokenLogprob, TokenUsage
from naiad.wire.openai.tool_calls.calls import CallDelta, ToolCall

OWNER: Final = "Triton Inference Server"
"""Who owns a model, as the reference says it."""
ROLE: Final = "assistant"


class DocumentHead(NamedTuple):
    """What all documents of one response have in common; ``created`` are seconds since 1970."""

    id: str
    created: int
    model: str

    def document(self, kind: str, choices: list[dict[str, Any]], usage: TokenUsage | None) -> dict[str, Any]:
        """A document of this response; ``kind`` is its type."""
        return {
            "id": self.id,
            "choices": choices,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "object": kind,
            "usage": None if usage is None else usage.as_json(),
        }


def completion_choice(
    text: str, finish_reason: str, logprobs: Sequence[TokenLogprob] | None, offset: int = 0
) -> dict[str, Any]:
    """A text, or a part of one that begins at ``offset``."""
    shown = None if logprobs is None else _completion_logprobs(logprobs, offset)
    return {"finish_reason": finish_reason or None, "index": 0, "logprobs": shown, "text": text}


def _completion_logprobs(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    offsets = []
    for one in tokens:
        offsets.append(offset)
        offset += len(one.token)
    return {
        "text_offset": offsets,
        "token_logprobs": [one.logprob for one in tokens],
        "tokens": [one.token for one in tokens],
        "top_logprobs": [one.top for one in tokens],
    }


def chat_choice(
    text: str, calls: Sequence[ToolCall], finish_reason: str, logprobs: Sequence[TokenLogprob] | None, response_id: str
) -> dict[str, Any]:
    """A whole turn."""
    shown = [
        {
            "id": call_id(response_id, index),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for index, call in enumerate(calls)
    ]
    turn = {"content": text, "tool_calls": shown or None, "role": ROLE, "function_call": None}
    return {
        "finish_reason": finish_reason or None,
        "index": 0,
        "message": turn,
        "logprobs": _chat_logprobs(logprobs),
    }


def chat_part(
    text: str | None,
    calls: Sequence[CallDelta],
    finish_reason: str,
    logprobs: Sequence[TokenLogprob] | None,
    response_id: str,
) -> dict[str, Any]:
    """A part of a turn."""
    delta: dict[str, Any] = {"content": text}
    if calls:
        delta["tool_calls"] = [_call_part(call, response_id) for call in calls]
    return {
        "delta": delta,
        "finish_reason": finish_reason or None,
        "index": 0,
        "logprobs": _chat_logprobs(logprobs),
    }


def first_part() -> dict[str, Any]:
    """The first part of a turn, which says whose it is."""
    return {
        "delta": {"role": ROLE, "content": "", "function_call": None},
        "finish_reason": None,
        "index": 0,
        "logprobs": None,
    }


def _call_part(call: CallDelta, response_id: str) -> dict[str, Any]:
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {
        "index": call.index,
        "id": call_id(response_id, call.index),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def call_id(response_id: str, index: int) -> str:
    """The id of a call of a tool, by which the conversation goes on.

    The templates of Mistral's models take ids of nine letters and digits alone.
    """
    return blake2b(f"{response_id}-{index}".encode()).hexdigest()[:9]


def _chat_logprobs(tokens: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {
        "content": [
            {
                "token": one.token,
                "logprob": one.logprob,
                "bytes": list(one.token.encode()),
                "top_logprobs": [
                    {"token": token, "logprob": logprob, "bytes": list(token.encode())}
                    for token, logprob in one.top.items()
                ],
            }
            for one in tokens
        ]
    }


def model_document(name: str, created: int) -> dict[str, Any]:
    """A model in a list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": OWNER}


def error_document(message: str, kind: str, code: str | None = None, detail: object = None) -> dict[str, Any]:
    """An error: ``error`` is as OpenAI's API has it, ``detail`` as the reference's front end has it."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return {"error": error, "detail": message if detail is None else detail}
