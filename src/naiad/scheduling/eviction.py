"""Which models go when memory is needed, or when nobody used them for long: pure decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Resident(NamedTuple):
    """A loaded model.

    Attributes:
        size: the bytes that it holds.
        last_used_ms: when it was loaded or ran last.
        is_busy: it has requests that are not answered.
        is_held: it must stay: it is pinned, requests wait for it, or an operation on it runs.
    """

    name: str
    size: int
    last_used_ms: int
    is_busy: bool = False
    is_held: bool = False


def to_make_room(residents: Iterable[Resident], needed: int) -> list[Resident] | None:
    """Those that go so that ``needed`` bytes come free; None when all that may go are not enough.

    Idle ones go before busy ones, and of either those first that were not used for longest. None goes that turns out
    not to be needed, such as a small one when a larger one has to go as well.
    """
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
    # From the last used on: it is the one to be kept where one of several can be.
    for resident in reversed(chosen[:]):
        if freed - resident.size >= needed:
            chosen.remove(resident)
            freed -= resident.size
    return chosen


def idle(residents: Iterable[Resident], now_ms: int, idle_ms: int) -> list[Resident]:
    """Those that nobody used for ``idle_ms``."""
    return [r for r in residents if not (r.is_held or r.is_busy) and now_ms - r.last_used_ms >= idle_ms]
