"""How many requests, and how many bytes of them, the server holds at a time. What has no room is refused at once.

A queue that only grows helps nobody: its requests are answered when their callers have given up. Counted is what was
accepted and is not answered, whether it waits or runs, and what work on bodies has still to be done for requests.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from time import monotonic
from typing import Final

from naiad.errors import QueueFullError
from naiad.telemetry.metrics.server_statistics import CancelCounts

logger = logging.getLogger("naiad")

UNLIMITED: Final = 2**63 - 1
LOG_EVERY_S: Final = 10.0
"""How often it is logged that requests are refused."""
BOUNDS: Final = ("requests", "bytes", "model", "body", "json", "compressed", "queue")
"""What refuses: the bounds below, those on bodies that arrive, large JSON and compressed bodies, and queue policies."""
_ADVICE: Final = "try again later, send fewer at a time, or raise the option"


class RequestBudget:
    """The bounds of one server and what they are used for. Belongs to the event loop.

    A request of more bytes than all together may have is taken when there is no other one.

    Args:
        max_requests: how many requests may be unanswered.
        max_bytes: how many bytes these may hold.
        max_per_model: how many requests to one version of a model may be unanswered.
        refusal: the class of the errors for what has no room; it knows the status that callers get.

    Attributes:
        requests, bytes: held now.
        refused: how many were refused, by the bound that had no room.
        cancelled: how many calls ended before their answer.
    """

    __slots__ = (
        "_kind",
        "_logged_s",
        "bytes",
        "cancelled",
        "max_bytes",
        "max_per_model",
        "max_requests",
        "refused",
        "requests",
    )

    def __init__(
        self,
        max_requests: int = UNLIMITED,
        max_bytes: int = UNLIMITED,
        max_per_model: int = UNLIMITED,
        refusal: type[QueueFullError] = QueueFullError,
    ) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.max_per_model = max_per_model
        self.requests = 0
        self.bytes = 0
        self.refused = dict.fromkeys(BOUNDS, 0)
        self.cancelled = CancelCounts()
        self._kind = refusal
        self._logged_s = -LOG_EVERY_S

    def refusal(self, size: int, model: str = "", unanswered: int = 0) -> QueueFullError | None:
        """The error for one more request of ``size`` bytes, to a model with so many unanswered ones.

        None when there is room for it.
        """
        if self.requests >= self.max_requests:
            return self.refuse("requests", _requests_text(self.max_requests))
        if self.bytes + size > self.max_bytes and self.requests:
            return self.refuse("bytes", _bytes_text(size, self.max_bytes))
        if unanswered >= self.max_per_model:
            return self.refuse("model", _model_text(model, self.max_per_model))
        return None

    def check(self, size: int) -> None:
        """Check that there is room for ``size`` bytes more.

        Raises:
            QueueFullError: there is none.
        """
        if (error := self.refusal(size)) is not None:
            raise error

    def take(self, size: int) -> None:
        """Count a request of ``size`` bytes, whether there is room or not."""
        self.requests += 1
        self.bytes += size

    def let_go(self, size: int) -> None:
        """The request that held ``size`` bytes is done."""
        self.requests -= 1
        self.bytes -= size

    def refuse(self, bound: str, text: str) -> QueueFullError:
        """The error for a request that ``bound``, a key of ``refused``, has no room for."""
        self.refused[bound] += 1
        now_s = monotonic()
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            logger.warning("requests are refused: %s", text)
        return self._kind(text)


# A server that has too many requests says the same many times.


@lru_cache(maxsize=4)
def _requests_text(limit: int) -> str:
    return f"the server has {limit} unanswered requests, as many as --max-in-flight-requests allows: {_ADVICE}"


@lru_cache(maxsize=64)
def _bytes_text(size: int, limit: int) -> str:
    return (
        f"the unanswered requests and this one of {size} bytes would hold more than the {limit} bytes that "
        f"--max-in-flight-bytes allows: {_ADVICE}"
    )


@lru_cache(maxsize=64)
def _model_text(model: str, limit: int) -> str:
    return (
        f"model '{model}' has {limit} unanswered requests, as many as --max-in-flight-requests-per-model allows: "
        f"{_ADVICE}"
    )
