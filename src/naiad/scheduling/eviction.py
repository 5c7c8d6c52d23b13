"""Which models are unloaded to free memory, or because they are idle: pure decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Resident(NamedTuple):
    """A loaded model.

    Attributes:
        size: its bytes in memory.
        last_used_ms: when it was loaded or ran last.
        is_busy: it has open requests.
        is_held: it must stay because it is pinned, requests wait for it, or an operation on it runs.
    """

    name: str
    size: int
    last_used_ms: int
    is_busy: bool = False
    is_held: bool = False


def to_make_room(residents: Iterable[Resident], needed: int) -> list[Resident] | None:
    """The models to unload for ``needed`` bytes; None when all that may be unloaded are not enough.

    Idle models come before busy ones, and within both the least recently used first. A small model that turns out not
    to be needed, because a larger one has to be unloaded as well, stays.
    """
    # A model without measured memory would free nothing.
    order = sorted(
        (r for r in residents if not r.is_held and r.size > 0), key=lambda r: (r.is_busy, r.last_used_ms, r.name)
    )
    chosen: list[Resident] = []
    freed = 0
    for resident in order:
        if freed >= needed:
            break
        chosen.append(resident)
        freed += resident.size
    if freed < needed:
        return None
    # From the most recently used on: where one of several can stay, it is that one.
    for resident in reversed(chosen[:]):
        if freed - resident.size >= needed:
            chosen.remove(resident)
            freed -= resident.size
    return chosen


def idle(residents: Iterable[Resident], now_ms: int, idle_ms: int) -> list[Resident]:
    """The models without a request for ``idle_ms``."""
    return [r for r in residents if not (r.is_held or r.is_busy) and now_ms - r.last_used_ms >= idle_ms]
