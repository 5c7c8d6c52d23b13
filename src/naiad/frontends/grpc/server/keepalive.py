"""Keepalive pings of one connection in both directions: a dead peer is noticed, a peer that pings too often refused.

Source: gRPC's "Keepalive User Guide" and proposals A8 (client side) and A9 (server side, connection age).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.limits import GrpcLimits

PING: Final = b"naiad ka"
_NS_PER_MS: Final = 1_000_000
# gRPC's value for never.
_NEVER_MS: Final = 2**31 - 1
_WITHOUT_CALLS_NS: Final = 2 * 3_600 * 10**9
"""The shortest time between a client's pings while it has no open call, unless the option permits more."""


class Keepalive:
    """Decides; the connection acts.

    Attributes:
        waits: a ping was sent, and nothing has been received since.
    """

    __slots__ = ("_limits", "_pinged_ns", "_pings_sent", "_seen_ns", "_sent_mark", "_strike_mark", "_strikes", "waits")

    def __init__(self, limits: GrpcLimits, now_ns: int) -> None:
        self._limits = limits
        self._seen_ns = now_ns
        self._pinged_ns = 0
        self._pings_sent = 0
        self._sent_mark = 0
        self._strikes = 0
        self._strike_mark = -1
        self.waits = False

    def peer_pinged(self, now_ns: int, has_calls: bool, sent: int) -> bool:
        """The peer sent a ping; True if it pings too often. ``sent`` changes when this side sends a response."""
        limits = self._limits
        # The first ping, and the first one after a response, are always allowed.
        if sent != self._strike_mark:
            self._strike_mark = sent
            self._strikes = 0
            self._pinged_ns = now_ns
            return False
        allowed_ns = limits.min_ping_interval_ms * _NS_PER_MS
        if not has_calls and not limits.keepalive_permit_without_calls:
            allowed_ns = max(allowed_ns, _WITHOUT_CALLS_NS)
        if now_ns - self._pinged_ns < allowed_ns:
            self._strikes += 1
        self._pinged_ns = now_ns
        return 0 < limits.max_ping_strikes < self._strikes

    def peer_is_there(self, now_ns: int) -> None:
        """Data came from the peer."""
        self._seen_ns = now_ns
        self.waits = False

    def is_dead(self, now_ns: int) -> bool:
        """Whether the peer has not answered a ping in time."""
        return self.waits and now_ns - self._seen_ns >= self._limits.keepalive_timeout_ms * _NS_PER_MS

    def should_ping(self, now_ns: int, has_calls: bool, sent: int) -> bool:
        """Whether the connection was quiet for so long that a ping is due, which True counts as sent."""
        limits = self._limits
        if self.waits or limits.keepalive_time_ms == _NEVER_MS:
            return False
        if now_ns - self._seen_ns < limits.keepalive_time_ms * _NS_PER_MS:
            return False
        if not has_calls and not limits.keepalive_permit_without_calls:
            return False
        if sent != self._sent_mark:
            self._sent_mark = sent
            self._pings_sent = 0
        if 0 < limits.max_pings_without_data <= self._pings_sent:
            return False
        self._pings_sent += 1
        self.waits = True
        # The timeout runs from the ping.
        self._seen_ns = now_ns
        return True
