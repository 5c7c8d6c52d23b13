"""Who goes for memory, and who goes for being idle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from naiad.scheduling.eviction import Resident, idle, to_make_room

RESIDENTS = st.lists(
    st.builds(
        Resident, st.text("abcdefgh", min_size=1, max_size=3), st.integers(0, 100), st.integers(0, 20), st.booleans(),
        st.booleans(),
    ),
    max_size=8,
    unique_by=lambda r: r.name,
)  # fmt: skip


@given(RESIDENTS, st.integers(0, 300))
def test_enough_goes_and_no_more_and_never_what_is_held(residents: list[Resident], needed: int) -> None:
    chosen = to_make_room(residents, needed)
    may_go = sum(r.size for r in residents if not r.is_held)
    assert (chosen is None) == (may_go < needed)
    if chosen is None:
        return
    freed = sum(r.size for r in chosen)
    assert freed >= needed
    assert len(set(chosen)) == len(chosen)
    assert not any(r.is_held for r in chosen)
    assert all(freed - r.size < needed for r in chosen)


@given(RESIDENTS, st.integers(1, 300))
def test_nobody_goes_for_who_was_used_longer_ago(residents: list[Resident], needed: int) -> None:
    chosen = to_make_room(residents, needed) or []
    last = max(((r.is_busy, r.last_used_ms, r.name) for r in chosen), default=None)
    # Without the one that was used last, those that were used before would not have been enough.
    if last is not None:
        before = [r for r in residents if not r.is_held and (r.is_busy, r.last_used_ms, r.name) < last]
        assert sum(r.size for r in before) < needed


@given(RESIDENTS, st.integers(0, 40), st.integers(1, 20))
def test_idle_ones(residents: list[Resident], now_ms: int, idle_ms: int) -> None:
    gone = idle(residents, now_ms, idle_ms)
    for resident in residents:
        is_old = now_ms - resident.last_used_ms >= idle_ms
        assert (resident in gone) == (is_old and not resident.is_busy and not resident.is_held)


def test_the_longest_unused_goes_first_and_busy_ones_last() -> None:
    a, b, c = Resident("a", 10, 3), Resident("b", 10, 1, is_busy=True), Resident("c", 10, 2)
    assert to_make_room([a, b, c], 5) == [c]
    assert to_make_room([a, b, c], 15) == [c, a]
    assert to_make_room([a, b, c], 25) == [c, a, b]
    assert to_make_room([a, b, c], 31) is None
    assert to_make_room([a, b, c], 0) == []


def test_a_small_one_stays_when_a_large_one_has_to_go_as_well() -> None:
    small, large = Resident("small", 1, 1), Resident("large", 100, 2)
    assert to_make_room([small, large], 50) == [large]
