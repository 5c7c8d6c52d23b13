"""What a loaded model does with a request before it queues it: refuse it, or have another version run it."""

from __future__ import annotations

from typing import Protocol

from naiad.execution.model.responder import stopping_error
from naiad.request import InferRequest


class Interceptor(Protocol):
    """Sees the requests of a model before they are admitted and queued. Belongs to the event loop."""

    def intercept(self, request: InferRequest, is_stopping: bool) -> bool:
        """Take a request over, if it belongs elsewhere.

        Returns:
            Whether that is done; otherwise the model queues the request itself.

        Raises:
            NaiadError: the model does not accept the request; with ``is_stopping`` it accepts no new ones.
        """

    def close(self) -> None:
        """Forget other versions; the last call."""


class StopInterceptor:
    """Refuses requests once the model stops. It need not be asked before."""

    def intercept(self, request: InferRequest, is_stopping: bool) -> bool:
        if is_stopping:
            raise stopping_error()
        return False

    def close(self) -> None:
        return
