"""A request that a front-end process has read and checked, in the engine's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from naiad.errors import NaiadError
from naiad.request import Array, InferRequest, Recipient, RequestOptions

if TYPE_CHECKING:
    from naiad.server.fronts.link import Place
    from naiad.worker.ipc.lent_tensors import MemoryFinder

Row = tuple[int, str, int, int, int, "list[Place]"]
"""Number, id, times of arrival and submission, bytes and places of one request."""


class Responder(Protocol):
    """What sends the responses of these requests."""

    def respond(self, request: RelayedRequest, outputs: Mapping[str, Array]) -> None:
        """Send the outputs of a request."""

    def fail(self, request: RelayedRequest, error: NaiadError, is_refusal: bool = False) -> None:
        """Send the error of a request; ``is_refusal``: that of its submission."""


class RelayedRequest(InferRequest):
    """It responds over the link to its front-end process.

    Attributes:
        finder: finds large outputs that can be lent to the front-end process; None for none.
        mark: its number in the front-end process.
        recipient: the model that it was submitted to; None before.
        version: the version to name in the response; 0 for the one that the front end knows.
    """

    __slots__ = ("_responder", "finder", "mark", "recipient", "version")

    def __init__(
        self,
        responder: Responder,
        mark: int,
        options: RequestOptions,
        inputs: Mapping[str, Array],
        id: str,
        received_ns: int,
        queued_ns: int,
        held_bytes: int,
    ) -> None:
        # Not through super(): the front end has counted its bytes, and this is the path of every request.
        self._responder = responder
        self.mark = mark
        self.options = options
        self.inputs = inputs
        self.id = id
        self.received_ns = received_ns
        self.queued_ns = queued_ns
        self.held_bytes = held_bytes
        self.recipient: Recipient | None = None
        self.version = 0
        self.finder: MemoryFinder | None = None

    def retarget(self, recipient: Recipient) -> None:
        self.recipient = recipient
        self.version = recipient.version

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is None:
            self._responder.respond(self, outputs)
        else:
            self._responder.fail(self, error)

    def refuse(self, error: NaiadError) -> None:
        self._responder.fail(self, error, is_refusal=True)


class HttpRelayedRequest(RelayedRequest):
    """A request that came over HTTP."""

    __slots__ = ()
    carrier: ClassVar[str] = "HTTP"


class GrpcRelayedRequest(RelayedRequest):
    """A request that came over gRPC."""

    __slots__ = ()
    carrier: ClassVar[str] = "GRPC"
