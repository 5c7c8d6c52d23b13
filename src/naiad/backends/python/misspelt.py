"""Warnings about parameters of Python models that look like misspelt ones of the server."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from typing import Final

from naiad.backends.environments.parameters import PACKED, PYTHON, REQUIREMENTS
from naiad.backends.shared.worker_limits import EXECUTE, MEMORY

logger = logging.getLogger("naiad")

_KNOWN: Final = {name.lower().replace("_", "-"): name for name in (PACKED, REQUIREMENTS, PYTHON, EXECUTE, MEMORY)}
_CUTOFF: Final = 0.85


def warn_of_misspelt(names: Iterable[str], model: str) -> None:
    """Warn of each parameter that is no one of the server's and looks like one. All may be the model's own."""
    for name in sorted(set(names) - set(_KNOWN.values())):
        for near in difflib.get_close_matches(name.lower().replace("_", "-"), _KNOWN, 1, _CUTOFF):
            logger.warning(
                "the parameter '%s' of model '%s' is left to the model; the server's own is called '%s'",
                name,
                model,
                _KNOWN[near],
            )
