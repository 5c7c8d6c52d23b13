"""Memory: the ``parameters`` that begin with ``memory``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.freeze import parameters
from naiad.config.memory import BYTES, PINNED, TRUTHS, stated_bytes
from naiad.config.problems import Violation


def violations(config: Any) -> Iterator[Violation]:
    """Problems with the values of the memory parameters."""
    found = parameters(config)
    if (text := found.get(PINNED)) is not None and text.strip().lower() not in TRUTHS:
        yield _violation(config, PINNED, text, '"true" or "false"')
    if (text := found.get(BYTES)) is not None and stated_bytes(found) is None:
        yield _violation(config, BYTES, text, "a number of bytes")


def _violation(config: Any, key: str, text: str, expected: str) -> Violation:
    message = f"parameter '{key}' of model '{config.name}' is \"{text[:64]}\", expected {expected}"
    return Violation(f'parameters["{key}"]', message)
