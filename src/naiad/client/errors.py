"""What goes wrong between a client and its server."""

from __future__ import annotations

from naiad.errors import NaiadError, UnavailableError


class ResponseError(NaiadError):
    """The server responded with an error, whose text this has.

    Attributes:
        status: of HTTP.
        retry_after_s: how long the server asks to wait, in seconds; 0 for nothing.
    """

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def may_pass_later(self) -> bool:
        """Whether the server was too busy, or not ready, so that it has not run the request."""
        return self.status in (429, 503)


class ConnectionFailedError(UnavailableError):
    """The server could not be reached, or the connection ended before the response.

    Attributes:
        was_sent: whether the server may have run the request.
    """

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class DeadlineExceededError(NaiadError):
    """The response did not come in the time that the caller gave."""

    http_status = 504
    grpc_code = 4
