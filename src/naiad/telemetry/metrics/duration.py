"""``Duration``: how often something happened, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        self.count += count
        self.ns += ns
