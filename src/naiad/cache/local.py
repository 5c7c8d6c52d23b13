"""The response cache in the memory of the server. All models share it; it evicts the least recently used responses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from time import monotonic_ns
from typing import Final

from naiad.cache.key import MOST_OUTPUT_BYTES, memory_within
from naiad.request import Array, Outputs
from naiad.telemetry.metrics.server_statistics import CacheFigures
from naiad.tensor.packed_bytes import is_packed

_ENTRY_BYTES: Final = 1024
"""The memory of an entry beside its tensors: objects, their headers and its place in the table."""


class LocalCache:
    """Responses by key, up to ``capacity`` bytes. Used on the event loop only."""

    def __init__(self, capacity: int) -> None:
        self.figures = CacheFigures(capacity)
        self._entries: OrderedDict[bytes, tuple[Mapping[str, Array], int]] = OrderedDict()

    def look_up(self, key: bytes) -> Mapping[str, Array] | None:
        """The cached outputs of ``key``, None when there are none. Their arrays are read-only."""
        begun_ns = monotonic_ns()
        found = self._entries.get(key)
        if found is None:
            self.figures.misses += 1
        else:
            self._entries.move_to_end(key)
            self.figures.hits += 1
        self.figures.lookup_ns += monotonic_ns() - begun_ns
        return None if found is None else found[0]

    def insert(self, key: bytes, outputs: Mapping[str, Array]) -> bool:
        """Cache a copy of ``outputs``; False when the key is cached already, or the copy would be too large."""
        begun_ns = monotonic_ns()
        figures = self.figures
        # Two equal requests that ran at the same time insert twice: the first response stays.
        held = None if key in self._entries else memory_within(outputs, MOST_OUTPUT_BYTES)
        if held is None:
            return False
        size = len(key) + _ENTRY_BYTES + held
        # Before the evictions: a response that never fits must not empty the cache.
        if size > figures.capacity:
            return False
        while figures.used + size > figures.capacity:
            _, (_, freed) = self._entries.popitem(last=False)
            figures.used -= freed
            figures.evictions += 1
        self._entries[key] = _copied(outputs), size
        figures.used += size
        figures.entries = len(self._entries)
        figures.insertion_ns += monotonic_ns() - begun_ns
        return True

    def __contains__(self, key: bytes) -> bool:
        """Whether there are cached outputs of ``key``."""
        return key in self._entries

    def __len__(self) -> int:
        """How many responses are cached."""
        return len(self._entries)


def _copied(outputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """A read-only copy. Outputs are often views of a whole batch, or of memory that will be reused."""
    copies = {name: array.copy() for name, array in outputs.items()}
    for array in copies.values():
        if not is_packed(array):
            array.flags.writeable = False
    return Outputs(copies, outputs.parameters) if isinstance(outputs, Outputs) else copies
