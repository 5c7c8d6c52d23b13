"""Options of the port for the API of OpenAI whose values are more than a word or a number."""

from __future__ import annotations

from typing import Final

from naiad.options.kinds import Kind
from naiad.options.restriction import Restriction

TOOL_CALL_PARSERS: Final = ("llama3", "mistral")
KINDS_OF_MODELS: Final = ("vllm", "tensorrtllm")
_FEATURES: Final = {
    "inference": "inference",
    "model-repository": "model-repository",
    "metrics": "statistics",
    "health": "health",
}
"""The reference's names for the parts of this API, and those that they have on the other ports."""


def _read_restriction(text: str) -> Restriction:
    parts = text.split(maxsplit=2)
    if len(parts) != 3:
        raise ValueError(f"expected three words, '<API_1>,<API_2>,... <restricted-key> <restricted-value>'. Got {text}")
    apis, key, value = parts
    unknown = [api for api in apis.split(",") if api not in _FEATURES]
    if unknown:
        raise ValueError(f"Unknown API '{unknown[0]}'. Available APIs: {', '.join(_FEATURES)}")
    # A header's name has letters, digits and few signs, and its value no control characters.
    if not key.isascii() or not key.replace("-", "").replace("_", "").isalnum() or not value.isprintable():
        raise ValueError(f"'{key}' is no name of a header, or its value holds characters that no header can")
    return Restriction(tuple(_FEATURES[api] for api in apis.split(",")), key, value)


OPENAI_RESTRICTION: Final = Kind(
    "'<api,...> <key> <value>'", f"'<api,...> <key> <value>' with any of {', '.join(_FEATURES)}", _read_restriction
)
