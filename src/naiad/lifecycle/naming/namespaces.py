"""The models by name where names may repeat (``--model-namespacing``). Used on the event loop only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from naiad.errors import InvalidArgumentError
from naiad.repository.local.namespaces import short_name

if TYPE_CHECKING:
    from naiad.lifecycle.state.model_table import ModelEntry


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
        """The keys of all models of a name; a key stands for itself."""
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
    return serving[0] if serving else candidates[0]


def ambiguous(name: str, count: int) -> InvalidArgumentError:
    """The error for a name that several models have."""
    return InvalidArgumentError(
        f"There are {count} identifiers of model '{name}' in global map, model namespace must be provided to resolve "
        "ambiguity."
    )
