"""The memory that the ports may use together for data that clients send, and for responses that they do not take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

IN_FLIGHT_SHARE: Final = 4
ARRIVING_SHARE: Final = 4
WAITING_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Parts of the memory that this process may use, in bytes.

    Attributes:
        in_flight: what unanswered requests may hold.
        arriving: what messages and bodies that are not whole yet may hold, of each protocol.
        waiting: what answers that their peers do not take may hold, of each protocol.
    """

    in_flight: int
    arriving: int
    waiting: int

    @classmethod
    def of(cls, usable_bytes: int, max_in_flight_bytes: int = 0) -> MemoryShares:
        """The shares of ``usable_bytes``; ``max_in_flight_bytes`` is the option of that name, 0 for its default.

        Who raises the option lets single messages be as large.
        """
        arriving = max(usable_bytes // ARRIVING_SHARE, max_in_flight_bytes)
        in_flight = max_in_flight_bytes or usable_bytes // IN_FLIGHT_SHARE
        return cls(in_flight, arriving, usable_bytes // WAITING_SHARE)
