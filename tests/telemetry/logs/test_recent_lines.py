"""The last lines of the log in memory."""

from __future__ import annotations

import logging

from naiad.telemetry.logs.recent_lines import MAX_CHARACTERS, MAX_LINES, RecentLines


def test_lines_after_a_number() -> None:
    recent = RecentLines()
    assert recent.after(0) == []
    recent.append(logging.INFO, "one\n")
    recent.append(logging.ERROR, "two\n")
    assert [(line.number, line.level, line.text) for line in recent.after(0)] == [(1, 20, "one"), (2, 40, "two")]
    assert [line.text for line in recent.after(1)] == ["two"]
    assert recent.after(2) == []


def test_lines_and_their_length_are_bounded() -> None:
    recent = RecentLines()
    for number in range(MAX_LINES + 10):
        recent.append(logging.INFO, f"{number} " + "x" * (2 * MAX_CHARACTERS))
    kept = recent.after(0)
    assert (len(kept), kept[0].number, kept[-1].number) == (MAX_LINES, 11, MAX_LINES + 10)
    assert max(len(line.text) for line in kept) == MAX_CHARACTERS
    assert len(recent.after(MAX_LINES + 5)) == 5
