"""Bounded waits on conditions, in place of sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_LONG_S: Final = 5.0
_STRETCH: Final = 3
_MAX_STRETCHED_S: Final = 60.0
_INTERVAL_S: Final = 0.01


class ServerStateError(AssertionError):
    """A server did not reach the state that a test waited for; the message ends with its log."""


def wait_until(condition: Callable[[], object], within_s: float, what: str) -> None:
    """Wait until ``condition()`` is true.

    A bound of 5 seconds or more only ends a test that hangs, so it is tripled, to 60 seconds at most: a busy machine
    must not fail a test. A shorter bound is part of what the test checks.

    Args:
        condition: called every 10 ms.
        within_s: the bound in seconds.
        what: the awaited state, for the error message.

    Raises:
        ServerStateError: the condition did not hold in time.
    """
    if within_s >= _LONG_S:
        within_s = max(within_s, min(_STRETCH * within_s, _MAX_STRETCHED_S))
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise ServerStateError(f"not within {within_s} s: {what}")
        time.sleep(_INTERVAL_S)
