"""Models that nothing is left of but their names, which callers may choose. A bounded number of them is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.lifecycle.entries import ModelEntry
    from naiad.lifecycle.names import Names

MAX_STRAYS: Final = 256
"""How many models are remembered that no repository holds and of which nothing is loaded."""


class Strays:
    """Those among ``entries``. Used on the event loop only."""

    def __init__(self, entries: MutableMapping[str, ModelEntry], names: Names) -> None:
        self._entries = entries
        self._names = names
        self._strays: OrderedDict[str, None] = OrderedDict()

    def note(self, name: str) -> None:
        """Something has become of a model: it may be one now. Of too many the oldest is forgotten."""
        self._strays.pop(name, None)
        if name in self._names.known or name not in self._entries:
            return
        self._strays[name] = None
        if len(self._strays) > MAX_STRAYS:
            gone = next((stray for stray in self._strays if self._entries[stray].is_empty), None)
            if gone is not None:
                del self._strays[gone], self._entries[gone]
