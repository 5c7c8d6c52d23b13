"""The process that runs a model, as far as the objects of the models' interface need it.

A leaf: the objects are made by the process and call it back, so only this protocol stands between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Protocol, Sequence

if TYPE_CHECKING:
    import asyncio

    from ..ipc.client_memory import Parts
    from ..ipc.reader import Channel
    from .inference_response import InferenceResponse
    from .tensor import Tensor


class Host(Protocol):
    """One model instance and its connection to the server. May be called by any thread.

    Attributes:
        is_decoupled: the model may send any number of responses to a request.
        model_directory: the folder of the model's version.
        channel: the connection to the server; a thread that waits for a frame reads from it.
    """

    is_decoupled: bool
    model_directory: str
    channel: Channel

    def respond(
        self, number: int, response: InferenceResponse | None, wanted: Any, final: bool, parts: Parts | None = None
    ) -> None:
        """Send a response to the request of that number, or the end of its responses."""

    def abandoned(self, number: int, has_responded: bool) -> None:
        """Note that the model dropped the response sender of a request without a final response."""

    def is_cancelled(self, number: int) -> bool:
        """Whether the caller cancelled a request."""

    def start_call(
        self,
        head: Mapping[str, Any],
        tensors: Sequence[Tensor],
        options: Mapping[str, Any],
        deliver: Callable[[InferenceResponse | None, bool], object],
    ) -> int:
        """Call another model; the number of the call.

        ``deliver`` gets each response (None for an empty one) and whether it is the last, in any thread.

        Raises:
            TritonModelException: the model is not executing.
        """

    def cancel_call(self, number: int) -> None:
        """Cancel a call. Responses that are under way still come."""

    def send_request(self, content: Mapping[str, Any]) -> Any:
        """Send a control request and wait for its value.

        Raises:
            TritonModelException: the server refused it.
        """

    def notify(self, content: Mapping[str, Any]) -> None:
        """Send a notification, which has no reply."""

    def log(self, level: str, message: str, file: str = ..., line: int = ..., once: str = ...) -> None:
        """Write a line into the server's log; of lines with the same ``once`` the server writes the first."""

    def read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a loop read from the connection while it waits for a call."""

    def stop_reading_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """End one ``read_in``."""
