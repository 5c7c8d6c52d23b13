"""The members that requests for completions and for chat completions have in common, and what they mean for a model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from naiad.errors import InvalidArgumentError
from naiad.wire.openai.schema import Member, any_object, flag, integer, number, object_of, text, text_or_texts

_INT64: Final = 1 << 63
NO_LOGPROBS: Final = "logprobs are currently available only for the vLLM backend"
SAMPLING: Final[Mapping[str, Member]] = MappingProxyType(
    {
        "frequency_penalty": Member(number(-2, 2), 0),
        "ignore_eos": Member(flag, False),
        "max_tokens": Member(integer(0)),
        "min_tokens": Member(integer(0)),
        "n": Member(integer(1, 128), 1),
        "presence_penalty": Member(number(-2, 2), 0),
        "seed": Member(integer(-_INT64, _INT64 - 1)),
        "stop": Member(text_or_texts),
        "temperature": Member(number(0, 2), 1),
        "top_p": Member(number(0, 1), 1),
    }
)
"""The members by which a model chooses the next token. ``ignore_eos`` and ``min_tokens`` are the reference's own."""
COMMON: Final[Mapping[str, Member]] = MappingProxyType(
    {
        **SAMPLING,
        "logit_bias": Member(any_object),
        "stream": Member(flag, False),
        "stream_options": Member(object_of({"include_usage": Member(flag, False)})),
        # OpenAI's clients send them; they concern its own service.
        "metadata": Member(any_object),
        "prompt_cache_key": Member(text),
        "safety_identifier": Member(text),
        "service_tier": Member(text),
        "store": Member(flag),
        "user": Member(text),
    }
)


class Sampling(NamedTuple):
    """How a model is to generate a text.

    Attributes:
        values: the members of ``SAMPLING``; None for those that are not set.
        max_tokens: the most tokens to generate; None if the request does not say.
        logprobs: for how many tokens at each place log-probabilities are wanted; None for none, 0 for the chosen
            one alone.
        stream: each part of the text is wanted at once.
        include_usage: a stream is to end with the numbers of tokens.
    """

    values: Mapping[str, Any]
    max_tokens: int | None
    logprobs: int | None
    stream: bool
    include_usage: bool

    @property
    def stop(self) -> list[str]:
        """The texts before which the model is to stop."""
        stop = self.values["stop"]
        return [stop] if isinstance(stop, str) else stop or []


def read_sampling(values: Mapping[str, Any], max_tokens: int | None, logprobs: int | None) -> Sampling:
    """What the checked members ``values`` of a request say."""
    include_usage = bool((values["stream_options"] or {}).get("include_usage"))
    return Sampling({name: values[name] for name in SAMPLING}, max_tokens, logprobs, values["stream"], include_usage)


def check_one_choice(sampling: Sampling) -> None:
    """Refuse to generate several texts.

    Raises:
        InvalidArgumentError: they are wanted; the text is the reference's.
    """
    count = sampling.values["n"]
    if count > 1:
        raise InvalidArgumentError(f"Received n={count}, but only single choice (n=1) is currently supported")


def check_stream(values: Mapping[str, Any]) -> None:
    """Refuse options of a stream where none is wanted.

    Raises:
        InvalidArgumentError: the members ``values`` have them; the text is the reference's.
    """
    if values["stream_options"] and not values["stream"]:
        raise InvalidArgumentError("`stream_options` can only be used when `stream` is True")
