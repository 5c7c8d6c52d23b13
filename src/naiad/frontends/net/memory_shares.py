"""The memory that all ports together may use for data that clients send, and for responses that they do not take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Fractions: with fixed bounds of some GiB a few slow readers ended a server that had 1 GiB.
IN_FLIGHT_SHARE: Final = 4
ARRIVING_SHARE: Final = 4
WAITING_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Parts of the memory that this process may use, in bytes.

    Attributes:
        in_flight: the share of requests in flight.
        arriving: the share of messages and bodies that are not whole yet, for each protocol.
        waiting: the share of responses that their peers do not take, for each protocol.
    """

    in_flight: int
    arriving: int
    waiting: int

    @classmethod
    def of(cls, usable_bytes: int, max_in_flight_bytes: int = 0) -> MemoryShares:
        """The shares of ``usable_bytes``; ``max_in_flight_bytes`` is the option of that name, 0 for its default.

        Raising the option raises ``arriving`` too, so that a single message may be as large.
        """
        arriving = max(usable_bytes // ARRIVING_SHARE, max_in_flight_bytes)
        in_flight = max_in_flight_bytes or usable_bytes // IN_FLIGHT_SHARE
        return cls(in_flight, arriving, usable_bytes // WAITING_SHARE)
