"""How long a caller who takes nothing may hold others up."""

from __future__ import annotations

from typing import Final

BACKPRESSURE_TIMEOUT_MS: Final = 500
"""Threads of a model that other requests need, too, wait no longer for one caller, until it has taken what waits."""
