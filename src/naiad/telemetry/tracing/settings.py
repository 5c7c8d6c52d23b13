"""Trace settings, of all models or of one, and the changes that API requests make.

Source: the protocol's extension "trace".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from naiad.errors import InvalidArgumentError, UnsupportedError
from naiad.options.trace_config import OFF, RANGES, known_level, trace_levels, trace_number

logger = logging.getLogger("naiad")

FILE_IS_FIXED: Final = "trace file location can not be updated through network protocol"

Value = int | tuple[str, ...]
Changes = Mapping[str, Value | None]
"""New values by name; None restores the value that a setting has without the change."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The settings of one scope, by their names in the protocol.

    Attributes:
        trace_level: ``("OFF",)``, or the parts of a request that are traced.
        trace_rate: one of this many requests is traced; 0 for none.
        trace_count: how many further requests are traced; -1 for no limit.
        log_frequency: the number of traces per numbered file; 0 for all in one file.
    """

    trace_level: tuple[str, ...] = (OFF,)
    trace_rate: int = 1000
    trace_count: int = -1
    log_frequency: int = 0

    @property
    def is_on(self) -> bool:
        """Whether a level other than OFF is set."""
        return self.trace_level != (OFF,)

    @property
    def traces(self) -> bool:
        """Whether any request is traced."""
        return self.is_on and self.trace_rate > 0 and self.trace_count != 0


def read_changes(given: Mapping[str, Sequence[str] | None]) -> dict[str, Value | None]:
    """The changes of an API request, as texts; None clears a setting. Unknown names are ignored.

    Raises:
        UnsupportedError: ``trace_file`` is among the changes.
        InvalidArgumentError: a value is wrong.
    """
    if "trace_file" in given:
        raise UnsupportedError(FILE_IS_FIXED)
    try:
        return {name: _read(name, texts) for name, texts in given.items() if name in RANGES or name == "trace_level"}
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def _read(name: str, texts: Sequence[str] | None) -> Value | None:
    if texts is None:
        return None
    if name == "trace_level":
        if unknown := [text for text in texts if known_level(text) is None]:
            logger.warning("trace level %.100r is not known and is ignored: use OFF, TIMESTAMPS or TENSORS", unknown[0])
        return trace_levels(texts)
    if len(texts) != 1:
        raise ValueError(f"expect only 1 value for '{name}'")
    return trace_number(name, texts[0])
