"""The ``parameters`` of a model about its memory."""

from __future__ import annotations

from typing import Final

PINNED: Final = "memory.pinned"
"""``true``: the model is never unloaded to make room, nor for being idle."""
BYTES: Final = "memory.bytes"
"""How much memory all of the model takes, for its loads; else what was measured last, or the size of the files."""
TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


def is_true(text: str) -> bool:
    """Whether a checked parameter says so."""
    return TRUTHS.get(text.strip().lower(), False)
