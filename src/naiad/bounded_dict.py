"""A dict of bounded size, for caches whose keys come from clients."""

from __future__ import annotations

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedDict(dict[_Key, _Value]):
    """A dict that is emptied when a new key would exceed its capacity.

    Emptying it needs no order of use, which every hit would have to update; callers that repeat themselves fill it
    again at once. Reads are those of ``dict``. Only assignment to a key is bounded, ``update`` and ``setdefault`` are
    not.

    Args:
        capacity: the largest number of entries, at least 1.
    """

    __slots__ = ("_capacity",)

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if len(self) >= self._capacity and key not in self:
            self.clear()
        super().__setitem__(key, value)
