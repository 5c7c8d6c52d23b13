"""The body of a request to ``POST /v1/embeddings``, and the embedding as the caller wants it.

Source: OpenAI's API, as far as the reference has it, whose texts the errors have.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from naiad.wire.json_text import load_json
from naiad.wire.openai.schema import Member, Place, Problem, anything, integer, one_of, read_members, text


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A text, or the numbers of its tokens, to embed.

    Attributes:
        model: its name, with that of an adapter where one is meant.
        dimensions: the length of the embedding; None for the model's own.
        is_base64: the embedding is wanted as base64 of FP32 numbers.
    """

    model: str
    input: str | list[int]
    dimensions: int | None
    is_base64: bool

    def encode(self, embedding: list[float]) -> list[float] | str:
        """The embedding in the form that is wanted."""
        if not self.is_base64:
            return embedding
        return base64.b64encode(np.array(embedding, "<f4").tobytes()).decode("ascii")


_TOKEN: Final = integer(0)


def _input(value: Any, place: Place) -> Iterator[Problem]:
    if not isinstance(value, str | list):
        yield Problem("string_type", place, "Input should be a valid string")
    elif not value:
        yield Problem("too_short", place, "Value should have at least 1 item after validation, not 0")
    elif isinstance(value, list):
        for index, token in enumerate(value):
            yield from _TOKEN(token, (*place, index))


_MEMBERS: Final[Mapping[str, Member]] = {
    "input": Member(_input, is_required=True),
    "model": Member(text, is_required=True),
    "dimensions": Member(integer(1)),
    "encoding_format": Member(one_of("float", "base64"), "float"),
    "user": Member(anything),
}


def read_embedding(raw: bytes | bytearray | memoryview) -> EmbeddingRequest:
    """The request in the body ``raw``.

    Raises:
        SchemaError: a member is missing, unknown, of the wrong type or out of its limits.
        MalformedRequestError: it is no JSON.
    """
    values = read_members(load_json(raw), _MEMBERS, ("body",))
    is_base64 = values["encoding_format"] == "base64"
    return EmbeddingRequest(values["model"], values["input"], values["dimensions"], is_base64)
