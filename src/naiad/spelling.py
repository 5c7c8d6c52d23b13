"""The known name that a misspelt one looks like."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_spelling(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that looks most like ``name``, None when none is near. Upper and lower case differ.

    Args:
        cutoff: how alike they have to be, from 0 to 1.
    """
    found = difflib.get_close_matches(name, known, 1, cutoff)
    return found[0] if found else None
