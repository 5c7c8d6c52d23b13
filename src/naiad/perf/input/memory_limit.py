"""How much data one run may hold: what the machine has no memory for is refused, before it ends the process."""

from __future__ import annotations

from typing import Final

import psutil

from naiad.perf.input.error import PerfInputError

_COPIES: Final = 4
"""How many there are of the data at a time: of rows, batches, requests, and what the kernel holds."""


def check_room(size: int, what: str, advice: str) -> None:
    """Refuse data of ``size`` bytes for which there is not enough memory.

    Raises:
        PerfInputError: there is not; the text is ``what``, the sizes and ``advice``.
    """
    limit = psutil.virtual_memory().total // _COPIES
    if size > limit:
        raise PerfInputError(f"{what} {size} bytes, expected at most {limit} on this machine: {advice}")
