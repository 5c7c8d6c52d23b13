"""What models are known by: their names, or with ``--model-namespacing`` keys, of which one name may have several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from naiad.errors import NaiadError
from naiad.lifecycle.naming.namespaces import NamespacedEntries
from naiad.lifecycle.state.load_errors import not_found
from naiad.lifecycle.state.load_threads import in_thread
from naiad.repository.local.namespaces import short_name

if TYPE_CHECKING:
    from naiad.lifecycle.naming.repository_names import RepositoryNames
    from naiad.lifecycle.state.model_table import ModelEntry
    from naiad.repository.catalog import Catalog


class ModelKeys:
    """The keys behind names. Used on the event loop only.

    Args:
        catalog: what the repositories hold.
        names: what they held when somebody looked last.
        entries: all models that the server knows.
    """

    def __init__(self, catalog: Catalog, names: RepositoryNames, entries: Mapping[str, ModelEntry]) -> None:
        self._catalog = catalog
        self._names = names
        self._entries = entries

    def is_key(self, name: str) -> bool:
        """A name stands for one model alone, whatever the repositories hold."""
        return not self._catalog.has_namespaces or "/" in name

    def seen(self, name: str) -> list[str]:
        """Those of a name when somebody looked last."""
        if self.is_key(name):
            return [name]
        return [key for key in self._names.known if short_name(key) == name]

    def one_seen(self, name: str) -> str:
        """The only one of a name, or the name itself where there are several or none."""
        keys = self.seen(name)
        return keys[0] if len(keys) == 1 else name

    async def found(self, name: str) -> list[str]:
        """Those of a name now; the name itself where there are none.

        Raises:
            NaiadError: a repository cannot be read, or there can be no such name.
        """
        if self.is_key(name):
            return [name]
        try:
            return await in_thread(self._catalog.keys, name) or [name]
        except NaiadError as error:
            raise not_found(name, error) from error

    def known(self, name: str) -> list[str]:
        """Those of a name that the server knows; the name itself where there are none."""
        keys = self._entries.keys_of(name) if isinstance(self._entries, NamespacedEntries) else []
        return keys or [name]
