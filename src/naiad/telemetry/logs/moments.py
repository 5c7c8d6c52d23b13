"""Points of time as texts."""

from __future__ import annotations

import time


def split_time(seconds: float) -> tuple[time.struct_time, int]:
    """A time since the epoch in seconds, as UTC and microseconds."""
    whole, microseconds = divmod(round(seconds * 1_000_000), 1_000_000)
    return time.gmtime(whole), microseconds


def iso_text(seconds: float) -> str:
    """A time since the epoch in seconds, as RFC 3339 has it: ``2026-01-31T23:59:59.123456Z``."""
    moment, microseconds = split_time(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment) + f".{microseconds:06d}Z"
