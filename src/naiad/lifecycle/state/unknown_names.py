"""Models that nothing is left of but their names, which callers may choose. A bounded number of them is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.lifecycle.state.model_table import ModelEntry

MAX_STRAYS: Final = 256
"""How many models are remembered that no repository holds and of which nothing is loaded."""


class UnknownNames:
    """Those among ``entries``. Used on the event loop only.

    Args:
        entries: all models.
        known: the names of the models in the repositories now.
        is_under_way: an operation on a model runs or waits, which needs its entry.
    """

    def __init__(
        self,
        entries: MutableMapping[str, ModelEntry],
        known: Callable[[], frozenset[str]],
        is_under_way: Callable[[str], bool],
    ) -> None:
        self._entries = entries
        self._known = known
        self._is_under_way = is_under_way
        self._strays: OrderedDict[str, None] = OrderedDict()

    def note(self, name: str) -> None:
        """Something has become of a model: it may be one now. Of too many those are forgotten that came first."""
        self._strays.pop(name, None)
        strays = self._entries.keys() - self._known()
        for stray in self._strays.keys() - strays:
            del self._strays[stray]
        # Others were in a repository when something became of them. What could never be tried stays in the index.
        for stray in sorted(strays - self._strays.keys() - {name}):
            if self._entries[stray].versions:
                self._strays[stray] = None
        if name in strays:
            self._strays[name] = None
        while len(self._strays) > MAX_STRAYS and (gone := next(filter(self._may_go, self._strays), None)):
            del self._strays[gone], self._entries[gone]

    def _may_go(self, name: str) -> bool:
        return self._entries[name].is_empty and not self._is_under_way(name)
