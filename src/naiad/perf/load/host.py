"""What the generator asks of its machine: to be woken on time, and how many cores there are."""

from __future__ import annotations

import os
from typing import Final

# What Linux adds to each wait; with its usual 50 us no schedule is kept to better than that.
_TIMER_SLACK: Final = "/proc/self/timerslack_ns"


def sharpen_timers() -> None:
    """Be woken on time, where the system can do it."""
    try:
        with open(_TIMER_SLACK, "w") as file:
            file.write("1")
    except OSError:
        # Not Linux, or not allowed: requests of a schedule are then sent a little later.
        return


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
