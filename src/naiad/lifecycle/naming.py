"""The names of models: those in the repositories, the keys behind a name, and the model that a name stands for.

A model is known by its name. With ``--model-namespacing`` names may repeat: a model is known by its key there, which is
``<namespace>/<name>``. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from naiad.errors import InvalidArgumentError, NaiadError
from naiad.lifecycle.state.load_errors import not_found
from naiad.lifecycle.state.load_threads import in_thread
from naiad.repository.local.namespaces import short_name

if TYPE_CHECKING:
    from naiad.lifecycle.state.model_requests import Done
    from naiad.lifecycle.state.model_table import ModelEntry
    from naiad.repository.catalog import Catalog

logger = logging.getLogger("naiad")


class NamespacedEntries(dict[str, "ModelEntry"]):
    """Entries by key, found by name as well."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, list[str]] = {}

    def __setitem__(self, key: str, entry: ModelEntry) -> None:
        if key not in self:
            self._keys.setdefault(short_name(key), []).append(key)
        super().__setitem__(key, entry)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        keys = self._keys[short_name(key)]
        keys.remove(key)
        if not keys:
            del self._keys[short_name(key)]

    def keys_of(self, name: str) -> list[str]:
        """The keys of all models of a name; of a key, the key itself."""
        return [name] if name in self else list(self._keys.get(name, ()))


def resolve(entries: Mapping[str, ModelEntry], name: str) -> ModelEntry | None:
    """The model of a name, in whichever namespace it is; None when there are no namespaces and it is not there.

    Raises:
        InvalidArgumentError: several of the name serve, or there is none. The texts are the reference's own.
    """
    found = entries.get(name)
    if found is not None or not isinstance(entries, NamespacedEntries):
        return found
    candidates = [entries[key] for key in entries.keys_of(name)]
    serving = [entry for entry in candidates if entry.serving is not None]
    if len(serving) > 1:
        raise ambiguous(name, len(serving))
    if not candidates:
        raise InvalidArgumentError(f"Request for unknown model: '{name}' is not found")
    # None of them serves: any of them tells the caller that, and why.
    return serving[0] if serving else candidates[0]


def ambiguous(name: str, count: int) -> InvalidArgumentError:
    """The error for a name that several models have."""
    return InvalidArgumentError(
        f"There are {count} identifiers of model '{name}' in global map, model namespace must be provided to resolve "
        "ambiguity."
    )


class RepositoryNames:
    """The names of all models in the repositories.

    Attributes:
        known: the names at the last look.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.known: frozenset[str] = frozenset()
        self._catalog = catalog
        self._askers: list[Done] = []
        self._reading: asyncio.Task[None] | None = None

    def refresh(self, done: Done) -> None:
        """Look again; ``done`` gets None once ``known`` is newer than this call, or could not be read.

        All calls during a look share the next one: one thread serves any number of callers.
        """
        self._askers.append(done)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_for_all())

    async def _read_for_all(self) -> None:
        try:
            while self._askers:
                # Callers that come during the read wait for the next one: this one may have passed what they look for.
                asked, self._askers = self._askers, []
                try:
                    await self._read()
                finally:
                    for done in asked:
                        # In calls of their own: an error in one must not keep the others from theirs.
                        asyncio.get_running_loop().call_soon(done, None)
        finally:
            self._reading = None

    async def _read(self) -> None:
        try:
            self.known = await in_thread(self._catalog.names)
        except (NaiadError, OSError) as error:
            logger.warning("the repositories cannot be read, the index shows what was there before: %s", error)
        except Exception:
            logger.exception("the repositories cannot be read, the index shows what was there before")


class ModelKeys:
    """The keys behind names. Used on the event loop only.

    Args:
        catalog: the repositories.
        names: the names at the last look.
        entries: all models that the server knows.
    """

    def __init__(self, catalog: Catalog, names: RepositoryNames, entries: Mapping[str, ModelEntry]) -> None:
        self._catalog = catalog
        self._names = names
        self._entries = entries

    def is_key(self, name: str) -> bool:
        """Whether a name can stand for one model only."""
        return not self._catalog.has_namespaces or "/" in name

    def seen(self, name: str) -> list[str]:
        """The keys of a name at the last look."""
        if self.is_key(name):
            return [name]
        return [key for key in self._names.known if short_name(key) == name]

    def one_seen(self, name: str) -> str:
        """The only key of a name at the last look, or the name itself where there are several or none."""
        keys = self.seen(name)
        return keys[0] if len(keys) == 1 else name

    async def found(self, name: str) -> list[str]:
        """The keys of a name in the repositories now; the name itself where there are none.

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
        """The keys of a name in the model table; the name itself where there are none."""
        keys = self._entries.keys_of(name) if isinstance(self._entries, NamespacedEntries) else []
        return keys or [name]
