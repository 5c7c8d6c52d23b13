"""The known name that a misspelt one most likely stands for."""

from __future__ import annotations

from collections.abc import Iterable

from naiad.spelling import nearest_spelling

# What people write out of habit from numpy, ONNX or the wire protocol, where no spelling is near.
_ALIASES = {
    "BYTES": "TYPE_STRING",
    "TYPE_BYTES": "TYPE_STRING",
    "FLOAT": "TYPE_FP32",
    "FLOAT16": "TYPE_FP16",
    "FLOAT32": "TYPE_FP32",
    "FLOAT64": "TYPE_FP64",
    "DOUBLE": "TYPE_FP64",
    "BFLOAT16": "TYPE_BF16",
    "BOOLEAN": "TYPE_BOOL",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The entry of ``known`` that is closest to ``name``, None when none is close."""
    by_key = {candidate.lower(): candidate for candidate in known}
    alias = _ALIASES.get(name.upper().removeprefix("TYPE_"), _ALIASES.get(name.upper(), ""))
    if alias.lower() in by_key:
        return alias
    key = name.lower()
    if key in by_key:
        return by_key[key]
    if endings := [k for k in by_key if k.endswith("_" + key)]:
        return by_key[endings[0]]
    close = nearest_spelling(key, by_key)
    return by_key[close] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``, did you mean '<nearest>'?``, or "" when nothing is close."""
    found = nearest(name, known)
    return f", did you mean '{found}'?" if found else ""
