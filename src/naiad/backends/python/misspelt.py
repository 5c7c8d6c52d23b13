"""Warnings about parameters of Python models that look like misspelt ones of the server."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from naiad.backends.environments.parameters import PACKED, PYTHON, REQUIREMENTS
from naiad.backends.shared.worker_limits import EXECUTE, MEMORY
from naiad.spelling import nearest_spelling

logger = logging.getLogger("naiad")

_CUTOFF: Final = 0.85


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


_KNOWN: Final = {_plain(name): name for name in (PACKED, REQUIREMENTS, PYTHON, EXECUTE, MEMORY)}


def warn_of_misspelt(names: Iterable[str], model: str) -> None:
    """Warn of each parameter that is none of the server's and looks like one. It may be the model's own."""
    for name in sorted(set(names) - set(_KNOWN.values())):
        if near := nearest_spelling(_plain(name), _KNOWN, _CUTOFF):
            logger.warning(
                "the parameter '%s' of model '%s' is left to the model; the server's own is called '%s'",
                name,
                model,
                _KNOWN[near],
            )
