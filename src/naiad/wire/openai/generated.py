"""What a model generated: the text, why it ended, the numbers of tokens and their log-probabilities.

Source of the names of the outputs: the reference, and the backends for vLLM and TensorRT-LLM.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.errors import BackendError, MalformedRequestError
from naiad.request import Array
from naiad.wire.json_text import load_json

TEXT: Final = "text_output"
_INPUT_TOKENS: Final = "num_input_tokens"
_OUTPUT_TOKENS: Final = "num_output_tokens"
_LOGPROBS: Final = "logprobs"
_FINISH_REASON: Final = "finish_reason"
_FINISH_REASONS: Final = frozenset({"stop", "length", "content_filter"})


class TokenUsage(NamedTuple):
    """The numbers of tokens of a prompt and of what was generated."""

    prompt: int
    completion: int

    def as_json(self) -> dict[str, int]:
        """The object as OpenAI's API has it."""
        total = self.prompt + self.completion
        return {"completion_tokens": self.completion, "prompt_tokens": self.prompt, "total_tokens": total}


class TokenLogprob(NamedTuple):
    """The chosen token at one place, and the most likely ones with their log-probabilities, the chosen one first."""

    token: str
    logprob: float
    top: dict[str, float]


class Generated(NamedTuple):
    """One response of a model: a whole text, or a part of one.

    Attributes:
        finish_reason: why the text ends here; "" where the model does not say.
        usage: None where the model does not say.
        logprobs: of each token; None where the model does not say.
    """

    text: str
    finish_reason: str
    usage: TokenUsage | None
    logprobs: list[TokenLogprob] | None


NOTHING: Final = Generated("", "", None, None)


def read_generated(outputs: Mapping[str, Array]) -> Generated:
    """The response with these ``outputs``.

    Raises:
        BackendError: an output does not hold a single text.
    """
    text = _text(outputs, TEXT)
    reason = _text(outputs, _FINISH_REASON)
    usage = None
    if _INPUT_TOKENS in outputs and _OUTPUT_TOKENS in outputs:
        usage = TokenUsage(_count(outputs[_INPUT_TOKENS]), _count(outputs[_OUTPUT_TOKENS]))
    return Generated(text, reason if reason in _FINISH_REASONS else "", usage, _logprobs(_text(outputs, _LOGPROBS)))


def _text(outputs: Mapping[str, Array], name: str) -> str:
    """The text of an output; "" without it."""
    array = outputs.get(name)
    if array is None:
        return ""
    if array.size != 1:
        raise BackendError(f"Expected to find 1 string in the output, found {array.size} instead.")
    found = next(iter(array.flat))
    # A token may be a part of a character.
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def _count(array: Array) -> int:
    return int(np.asarray(array).flat[0]) if array.size else 0


def _logprobs(text: str) -> list[TokenLogprob] | None:
    """The log-probabilities in the output of vLLM: for each place an object by the numbers of tokens."""
    try:
        places = load_json(text.encode()) if text else None
        return [_token(place) for place in places if place] if places else None
    except (MalformedRequestError, TypeError, ValueError, KeyError, AttributeError):
        # What a model says about its tokens must not spoil its text.
        return None


def _token(place: Mapping[str, Mapping[str, Any]]) -> TokenLogprob:
    found = sorted(place.values(), key=lambda one: one.get("rank", sys.maxsize))
    # A token without a text of its own has null.
    pairs = [(str(one["decoded_token"] or ""), float(one["logprob"])) for one in found]
    return TokenLogprob(*pairs[0], dict(pairs))
