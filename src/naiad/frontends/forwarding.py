"""Headers of a caller that become parameters of its requests (``--http-header-forward-pattern`` and that of gRPC)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from naiad.errors import InvalidArgumentError
from naiad.options.header_pattern import HeaderPattern

RESERVED: Final = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
"""Parameters that mean something to the server."""


class HeaderForwarding:
    """Chooses the headers whose names match a pattern."""

    __slots__ = ("_pattern",)

    def __init__(self, pattern: str) -> None:
        self._pattern = HeaderPattern(pattern)

    def choose(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Those of ``headers`` that are forwarded, by name; of repeated ones the last.

        Raises:
            InvalidArgumentError: one of them has a name that is reserved.
        """
        chosen = {name: value for name, value in headers if self._pattern.matches(name)}
        for name in chosen:
            if name.lower() in RESERVED:
                raise InvalidArgumentError(f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")
        return chosen
