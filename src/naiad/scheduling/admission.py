"""Admission of requests: bounds on their number and their bytes. A request beyond a bound is refused at once.

A queue that only grows helps nobody: its requests run when their callers have given up. The bounds count accepted
requests without a final response, whether they wait or run, and bodies that are still being read or written.
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
"""The shortest time between two log lines about refused requests."""
BOUNDS: Final = ("requests", "bytes", "model", "body", "json", "compressed", "queue")
"""Names of the bounds: of this class, of arriving, large JSON and compressed bodies, and of queue policies."""
_ADVICE: Final = "try again later, send fewer at a time, or raise the option"


class RequestBudget:
    """The bounds of one server, and the open requests. Used on the event loop only.

    A request larger than ``max_bytes`` is admitted when it is the only one.

    Args:
        max_requests: the most open requests.
        max_bytes: the most bytes of all open requests.
        max_per_model: the most open requests to one version of a model.
        refusal: the class of the errors for refused requests; it has the status that callers get.

    Attributes:
        requests, bytes: of the open requests.
        refused: how many requests were refused, by the name of the bound.
        cancelled: how many calls ended before their response.
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
        # The first refusal is logged even where the monotonic clock has just begun.
        self._logged_s = -LOG_EVERY_S

    def refusal(self, size: int, model: str = "", unanswered: int = 0) -> QueueFullError | None:
        """The error for a request of ``size`` bytes to a model with ``unanswered`` open ones; None when it fits."""
        if self.requests >= self.max_requests:
            return self.refuse("requests", _requests_text(self.max_requests))
        # A request that is alone has room at any size: no later attempt would find more.
        if self.bytes + size > self.max_bytes and self.requests:
            return self.refuse("bytes", _bytes_text(size, self.max_bytes))
        if unanswered >= self.max_per_model:
            return self.refuse("model", _model_text(model, self.max_per_model))
        return None

    def check(self, size: int) -> None:
        """Check that one more request of ``size`` bytes fits.

        Raises:
            QueueFullError: it does not.
        """
        if (error := self.refusal(size)) is not None:
            raise error

    def take(self, size: int) -> None:
        """Count a request of ``size`` bytes, also beyond the bounds: some requests cannot be refused."""
        self.requests += 1
        self.bytes += size

    def release(self, size: int) -> None:
        """Count the end of a request of ``size`` bytes."""
        self.requests -= 1
        self.bytes -= size

    def refuse(self, bound: str, text: str) -> QueueFullError:
        """Count and log a refused request, and return its error; ``bound`` is a key of ``refused``."""
        self.refused[bound] += 1
        now_s = monotonic()
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            logger.warning("requests are refused: %s", text)
        return self._kind(text)


# An overloaded server sends the same text many times.


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
