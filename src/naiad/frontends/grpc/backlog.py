"""What waits for a caller who does not take the responses of decoupled models as fast as they come.

Such a model cannot be held up without holding up the other requests of its instance. So its responses are kept, up to
a bound; a request that would go beyond it is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from naiad.options import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.frontends.grpc.call import Buffer, Call

MAX_WAITING_BYTES: Final = 1 << 28
"""One response more is kept than there is room for, so that a single one may have any size."""


class Backlog:
    """The responses that wait on one call; counted as soon as the call is congested.

    Args:
        call: what they are sent on.
        limit: how many may wait.
    """

    __slots__ = ("_bytes", "_call", "_count", "_limit")

    def __init__(self, call: Call, limit: int = INT32_MAX) -> None:
        self._call = call
        self._limit = limit
        self._count = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """No further response may be sent for now."""
        return self._count >= self._limit or self._bytes > MAX_WAITING_BYTES

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Send a response, and note it if it has to wait."""
        self._call.send(parts, size)
        if self._call.congested:
            self._count += 1
            self._bytes += size

    def drained(self) -> None:
        """The caller took what waited."""
        self._count = self._bytes = 0
