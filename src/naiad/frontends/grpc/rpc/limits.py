"""The limits of a gRPC port, whichever transport serves it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Bounds and times of one listener and its connections. Times in ms have a resolution of one second.

    Attributes:
        max_message_bytes: largest request message, also once decompressed.
        max_partial_bytes: bytes of incomplete messages, of all connections together.
        max_connections: further ones get the reason and are closed.
        max_streams: open calls per connection. A connection that is opened among many gets a smaller number, its share
            of ``MAX_STREAMS_TOGETHER`` but at least ``MIN_STREAMS``; earlier connections keep theirs.
        keepalive_time_ms: a connection that is quiet for this time is pinged.
        keepalive_timeout_ms: a connection that does not answer a ping within this time is closed.
        keepalive_permit_without_calls: connections without an open call are pinged too, and may ping more often.
        max_pings_without_data: the pings that are sent while nothing else is.
        min_ping_interval_ms: a client that pings more often than this, more than ``max_ping_strikes`` times, is cut
            off.
        max_connection_age_ms: after this time a connection gets a GOAWAY; 0 for never.
        max_connection_age_grace_ms: after this further time it is closed; 0 for never.
        compression_level: of the responses to inference requests: ``none``, ``low``, ``medium`` or ``high``.
        start_s: the time for a connection's preface and first settings.
        stall_s: the time that a peer may pause within a frame.
        unread_s: the time that a peer may take nothing of its responses; drain_unread_s while the server stops.
        max_waiting_bytes: bytes of responses that wait for their peers, of all connections together; beyond it the
            connections with the most are closed.
        message_grace_s, min_message_bytes_per_s: a message may take the grace time, and longer at this rate or more.
        drain_linger_s: the time that a connection without calls may stay open while the server stops.
    """

    # The fixed limit of the reference; here it can be lowered.
    max_message_bytes: int = 2**31 - 1
    max_partial_bytes: int = 2**31 + (1 << 20)
    max_connections: int = 10_000
    max_streams: int = 4096
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_ping_interval_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_ms: int = 0
    max_connection_age_grace_ms: int = 0
    compression_level: str = "none"
    start_s: int = 30
    stall_s: int = 120
    unread_s: int = 600
    drain_unread_s: int = 5
    max_waiting_bytes: int = 1 << 32
    message_grace_s: int = 30
    min_message_bytes_per_s: int = 65_536
    drain_linger_s: int = 2
