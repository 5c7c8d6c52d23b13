"""Unknown models: entries of models that no repository has and of which nothing is loaded.

Callers may choose their names, so a bounded number of them is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.lifecycle.state.model_table import ModelEntry

MAX_UNKNOWN: Final = 256
"""How many unknown models are remembered."""


class UnknownNames:
    """The unknown models among ``entries``. Used on the event loop only.

    Args:
        entries: all models.
        known: the names of the models in the repositories now.
        has_operation: whether an operation on a model runs or is queued, which needs its entry.
    """

    def __init__(
        self,
        entries: MutableMapping[str, ModelEntry],
        known: Callable[[], frozenset[str]],
        has_operation: Callable[[str], bool],
    ) -> None:
        self._entries = entries
        self._known = known
        self._has_operation = has_operation
        self._unknown: OrderedDict[str, None] = OrderedDict()

    def note(self, name: str) -> None:
        """Look at a model after an operation: it may be unknown now. The oldest of too many are forgotten."""
        self._unknown.pop(name, None)
        unknown = self._entries.keys() - self._known()
        for other in self._unknown.keys() - unknown:
            del self._unknown[other]
        # Others left their repository since. A model that could never be tried stays in the index.
        for other in sorted(unknown - self._unknown.keys() - {name}):
            if self._entries[other].versions:
                self._unknown[other] = None
        if name in unknown:
            self._unknown[name] = None
        while len(self._unknown) > MAX_UNKNOWN and (gone := next(filter(self._may_go, self._unknown), None)):
            del self._unknown[gone], self._entries[gone]

    def _may_go(self, name: str) -> bool:
        return self._entries[name].is_empty and not self._has_operation(name)
