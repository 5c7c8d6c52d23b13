"""The body of a request to ``POST /v1/completions``.

Source: OpenAI's API, as far as the reference has it, whose texts the errors have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from naiad.errors import InvalidArgumentError
from naiad.wire.json_text import load_json
from naiad.wire.openai.sampling import (
    COMMON,
    NO_LOGPROBS,
    Sampling,
    check_one_choice,
    check_stream,
    read_sampling,
)
from naiad.wire.openai.schema import Member, Place, Problem, flag, integer, read_members, text


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A text that a model is to continue.

    Attributes:
        model: its name, with that of an adapter where one is meant.
        prompt: the text; an array is refused by ``check``.
        echo: the prompt is wanted before what follows it.
        values: all members.
    """

    model: str
    prompt: str
    sampling: Sampling
    echo: bool
    values: Mapping[str, Any]

    def check(self, is_vllm: bool) -> None:
        """Check that a model can do it, one that takes its requests as vLLM does or another one.

        Raises:
            InvalidArgumentError: it cannot.
        """
        best_of = self.values["best_of"]
        if self.values["suffix"] is not None:
            raise InvalidArgumentError("suffix is not currently supported")
        if not self.prompt:
            raise InvalidArgumentError("prompt must be non-empty")
        if not isinstance(self.prompt, str):
            raise InvalidArgumentError("only single string input is supported")
        if best_of is not None and is_vllm:
            raise InvalidArgumentError("best_of is no longer supported in vLLM backend, removed from vLLM V1 engine")
        check_one_choice(self.sampling)
        if best_of is not None and best_of > 1:
            raise InvalidArgumentError(
                f"Received best_of={best_of}, but only single choice (best_of=1) is currently supported"
            )
        if self.values["logit_bias"] is not None:
            raise InvalidArgumentError("logit bias is not supported")
        if self.sampling.logprobs is not None and not is_vllm:
            raise InvalidArgumentError(NO_LOGPROBS)
        check_stream(self.values)


def _prompt(value: Any, place: Place) -> Iterator[Problem]:
    if not isinstance(value, str | list):
        yield Problem("string_type", place, "Input should be a valid string")


_MEMBERS: Final[Mapping[str, Member]] = {
    "model": Member(text, is_required=True),
    "prompt": Member(_prompt, is_required=True),
    "best_of": Member(integer(0, 20)),
    "echo": Member(flag, False),
    "logprobs": Member(integer(0, 5)),
    "suffix": Member(text),
    **COMMON,
}


def read_completion(raw: bytes | bytearray | memoryview) -> CompletionRequest:
    """The request in the body ``raw``.

    Raises:
        SchemaError: a member is missing, unknown, of the wrong type or out of its limits.
        MalformedRequestError: it is no JSON.
    """
    values = read_members(load_json(raw), _MEMBERS, ("body",))
    sampling = read_sampling(values, values["max_tokens"], values["logprobs"] or None)
    return CompletionRequest(values["model"], values["prompt"], sampling, values["echo"], values)
