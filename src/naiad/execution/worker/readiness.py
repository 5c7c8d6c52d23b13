"""The readiness that a model reports with ``is_ready()``. The server asks once a second; the last reply counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from naiad.execution.worker.codec.writer import frame
from naiad.worker.ipc.frames import CHECK_READY

logger = logging.getLogger("naiad")

LIMIT_S: Final = 5.0
"""How long a check may take."""


class WorkerReadiness:
    """The readiness of one worker. A model with the method is not ready until it says so.

    Args:
        name: of the instance.
        has_ready_check: the model has the method.
        replied: called with the first reply, or when it does not come in time.

    Attributes:
        problem: the protocol's text for a model that is not ready; "" for a ready one.
    """

    def __init__(self, name: str, has_ready_check: bool, replied: Callable[[], object] = lambda: None) -> None:
        self._not_ready = f"Model '{name}' is not ready (user-defined check failed)."
        self.problem = self._not_ready if has_ready_check else ""
        self._replied = replied
        # None before the first reply.
        self._is_ready: bool | None = None
        self._name = name
        self._has_ready_check = has_ready_check
        self._last_checked = 0
        self._last_replied = 0
        self._silent_since: float | None = None

    def beat(self, now: float) -> bytes:
        """The frame of the next check, b"" for none; ``now`` in seconds of the monotonic clock."""
        if not self._has_ready_check:
            return b""
        if self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since > LIMIT_S:
            self._become(False, f"is_ready() gave no answer within {LIMIT_S:g} s")
        # Also while a check runs: the worker then begins the next one soon after it.
        self._last_checked += 1
        return frame(CHECK_READY, self._last_checked)

    def take(self, number: int, content: Mapping[str, Any]) -> None:
        """Take the reply to the check ``number``; a reply to no open check is ignored."""
        if not self._last_replied < number <= self._last_checked:
            return
        self._last_replied = number
        self._silent_since = None
        self._become(content.get("ready") is True, str(content.get("error") or "is_ready() said no"))

    def _become(self, ready: bool, reason: str) -> None:
        before, self._is_ready = self._is_ready, ready
        if ready and before is False:
            logger.info("%s is ready again", self._name)
        elif not ready and before is not False:
            logger.warning("%s is not ready: %s", self._name, reason)
        self.problem = "" if ready else self._not_ready
        if before is None:
            self._replied()
