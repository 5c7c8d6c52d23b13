"""The ``parameters`` of a model about its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PINNED: Final = "memory.pinned"
"""``true``: the model is never unloaded to make room, nor for being idle."""
BYTES: Final = "memory.bytes"
"""The memory of the whole model in bytes, for its loads. Without it the last measurement or its files' size counts."""
TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


def stated_bytes(parameters: Mapping[str, str]) -> int | None:
    """The memory that a model states, in bytes; None where it states none, or no number."""
    text = parameters.get(BYTES, "")
    # Numbers of this many digits fit 64 bits.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def is_true(text: str) -> bool:
    """Whether a checked parameter is true."""
    return TRUTHS.get(text.strip().lower(), False)
