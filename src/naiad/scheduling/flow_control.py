"""Back-pressure of callers that do not take their responses."""

from __future__ import annotations

from typing import Final

BACKPRESSURE_TIMEOUT_MS: Final = 500
"""How long a thread that other requests need, too, waits for one slow caller; not again until its backlog is empty."""
