"""One parameter of a model configuration that Naiad or a backend reads."""

from __future__ import annotations

from typing import Final, NamedTuple

GPU: Final = "a GPU"


class KnownParameter(NamedTuple):
    """A name that ``parameters`` may have.

    Attributes:
        name: the key; one that ends in ``*`` stands for all keys that begin so.
        summary: what it does, one line.
        needs: the device or thing without which it has no effect; "" for one that always acts.
    """

    name: str
    summary: str
    needs: str = ""

    def is_key(self, key: str) -> bool:
        """Whether this is the parameter behind ``key``."""
        return key.startswith(self.name[:-1]) if self.name.endswith("*") else key == self.name
