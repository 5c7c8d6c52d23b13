"""The length of the windows of models that complete little."""

from __future__ import annotations

import pytest

from naiad.analyze.measure.window_lengths import WindowLengths, longer_by
from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Window


def test_windows_are_as_long_as_their_load_needs() -> None:
    lengths = WindowLengths()
    lengths.lengthen(("a",), 8, 4.0)
    # A lower load completes no more; a higher one may.
    assert [lengths.times(("a",), load) for load in (1, 8, 32)] == [4.0, 4.0, 1.0]
    lengths.lengthen(("a",), 1, 2.0)
    assert [lengths.times(("a",), load) for load in (1, 8, 32)] == [8.0, 4.0, 1.0]
    assert lengths.times(("b",), 1) == 1.0


@pytest.mark.parametrize(
    ("requests", "times"),
    [
        ((100, 0, 120), 1.0),  # the machine paused
        ((8, 9, 8, 9), 1.0),
        ((6, 6, 6), 2.0),  # twelve are wanted
        ((0, 0, 1), 4.0),
    ],
)
def test_windows_with_too_few_requests_become_as_long_as_needed(requests: tuple[int, ...], times: float) -> None:
    windows = [Window(0, 1, requests=count) for count in requests]
    level = LevelResult(LoadLevel(LoadMode.CONCURRENCY, 4), 1, windows[0], windows)
    assert longer_by([level]) == times
