"""Processor time of the generator itself, and how long it waited for a processor."""

from __future__ import annotations

import time
from typing import NamedTuple

# The time on a processor, the time of waiting for one, and how often, in ns. Of Linux only.
_SCHEDULE = "/proc/self/schedstat"


class ProcessorTime(NamedTuple):
    """Sums since the start of the process.

    Attributes:
        used_ns: time on a processor, of all threads.
        waited_ns: time in which this thread could have run while others had the processors; 0 where it is not known.
    """

    used_ns: int
    waited_ns: int


def processor_time() -> ProcessorTime:
    """The sums so far."""
    try:
        with open(_SCHEDULE, "rb") as file:
            waited_ns = int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        waited_ns = 0
    return ProcessorTime(time.process_time_ns(), waited_ns)
