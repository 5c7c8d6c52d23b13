"""``InferenceResponseSender``: responses to one request, sent when the model wants to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..ipc.errors import TritonModelException
from .inference_response import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceResponse

if TYPE_CHECKING:
    from ..ipc.client_memory import Parts
    from .host import Host


class InferenceResponseSender:
    """Sends the responses to one request; may be used by any thread, also after ``execute`` returned.

    A sender that the model releases before the final response ends its request, with an error unless the one response
    of a model that is not decoupled was sent: no caller waits for ever.
    """

    __slots__ = ("_closed", "_decoupled", "_host", "_lock", "_number", "_parts", "_sent", "_wanted")

    def __init__(self, host: Host, number: int, wanted: Any, parts: Parts | None) -> None:
        self._host = host
        self._number = number
        self._wanted = wanted
        self._parts = parts
        self._decoupled = host.is_decoupled
        self._lock = threading.Lock()
        self._sent = 0
        self._closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the end of the responses (``TRITONSERVER_RESPONSE_COMPLETE_FINAL``), or both.

        Raises:
            TritonModelException: neither is given, the end was sent before, or, in a model that is not decoupled, this
                is a second response or an end without one.
        """
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send: the response must be an InferenceResponse, found {type(response)}")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if flags == 0 and response is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        # The order of counting and sending must be one and the same for all threads.
        with self._lock:
            self.count(response is not None, final)
            try:
                self._host.respond(self._number, response, self._wanted, final, self._parts)
            except BaseException:
                # No memory, say. The response was not sent, so the request still needs an end.
                self._sent -= 1
                self._closed = False
                raise

    def is_cancelled(self) -> bool:
        """Whether the caller cancelled the request."""
        return self._host.is_cancelled(self._number)

    def count(self, has_response: bool, final: bool) -> None:
        """Note a response that is about to be sent. Used by the runtime alone.

        Raises:
            TritonModelException: it may not be sent.
        """
        if not self._decoupled:
            self._check_default(has_response, final)
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        self._closed = final
        self._sent += 1

    def close(self) -> bool:
        """Refuse all further responses; returns whether it did so before. Used by the runtime alone."""
        was_closed, self._closed = self._closed, True
        return was_closed

    def _check_default(self, has_response: bool, final: bool) -> None:
        if has_response and self._sent > 0:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send more than one response."
            )
        if not has_response and final and self._sent == 0:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
            )

    def __del__(self) -> None:
        # In whichever thread drops it, and perhaps while that holds a lock: ``abandoned`` waits for none.
        if not self._closed:
            self._host.abandoned(self._number, has_responded=not self._decoupled and self._sent > 0)
