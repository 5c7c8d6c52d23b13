"""Sequences keep their version until they end, are idle for long, or are too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from naiad.clock import ManualClock
from naiad.scheduling.traffic.sticky import StickyVersions

SECOND = 1_000_000_000


def test_a_sequence_keeps_its_version_until_it_ends() -> None:
    sequences = StickyVersions(ManualClock())
    sequences.keep(7, 2)
    sequences.keep("seven", 1)
    assert (sequences.version(7), sequences.version("seven"), sequences.version(8)) == (2, 1, None)
    sequences.forget(7)
    assert sequences.version(7) is None
    sequences.forget(7)


def test_an_idle_sequence_is_forgotten_and_one_that_goes_on_is_not() -> None:
    clock = ManualClock()
    sequences = StickyVersions(clock, idle_s=10)
    sequences.keep(1, 1)
    sequences.keep(2, 2)
    clock.advance(9 * SECOND)
    sequences.keep(2, 2)
    clock.advance(2 * SECOND)
    assert (sequences.version(1), sequences.version(2)) == (None, 2)
    sequences.keep(3, 1)
    assert len(sequences) == 2


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(0, 8)), max_size=200))
def test_they_are_bounded_and_the_idlest_goes_first(requests: list[tuple[int, int, int]]) -> None:
    clock = ManualClock()
    sequences = StickyVersions(clock, idle_s=20, limit=8)
    last: dict[int, tuple[int, int]] = {}
    for number, version, pause_s in requests:
        clock.advance(pause_s * SECOND)
        sequences.keep(number, version)
        last.pop(number, None)
        last[number] = (version, clock.now_ns())
        assert len(sequences) <= 8
        alive = [n for n, (_, at) in last.items() if clock.now_ns() - at <= 20 * SECOND][-8:]
        for known, (kept, _) in last.items():
            assert sequences.version(known) == (kept if known in alive else None)
