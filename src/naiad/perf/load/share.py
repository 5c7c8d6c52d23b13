"""The part of a load that one of several processes makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """One of ``of`` equal parts, counted from 0."""

    index: int = 0
    of: int = 1

    def count(self, whole: int) -> int:
        """The part of a whole number; the parts add up to it."""
        return whole // self.of + (self.index < whole % self.of)

    def turns(self, items: Iterable[T]) -> Iterator[T]:
        """The items whose turn it is when the parts take turns; merged, they are all items in their order."""
        return islice(items, self.index, None, self.of)


WHOLE = Share()
