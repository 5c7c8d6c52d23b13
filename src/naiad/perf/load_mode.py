"""The ways in which a load says when requests are sent."""

from __future__ import annotations

from enum import StrEnum


class LoadMode(StrEnum):
    """How a level says when requests are sent. The values stand in the files of ``--json``."""

    CONCURRENCY = "concurrency"
    REQUEST_RATE = "request_rate"
    CUSTOM_INTERVALS = "custom_intervals"
    PERIODIC_CONCURRENCY = "periodic_concurrency"
    FIXED_SCHEDULE = "fixed_schedule"
    SESSION_CONCURRENCY = "session_concurrency"
