"""What the clients need of a protocol: requests as bytes, an exchange without a socket, and what responses say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from naiad.client.encode import InferOptions
from naiad.client.region import PlacedTensors
from naiad.client.result import InferResult
from naiad.tensor.dtypes import DataType

Parts = Sequence[bytes | memoryview]
"""A request in parts, so that large tensors are not copied."""


class PlainRequest(NamedTuple):
    """A request beside inference, in both protocols.

    Attributes:
        method, path, body: over HTTP.
        call: the method over gRPC, whose messages are ``<call>Request`` and ``<call>Response``.
        fields: of the message over gRPC.
        flag: the field of gRPC's response that says yes or no, which HTTP says by the status; "" for none.
        headers: of this request, beside the client's.
    """

    method: str
    path: str
    body: bytes = b""
    call: str = ""
    fields: Mapping[str, Any] = {}
    flag: str = ""
    headers: Mapping[str, str] = {}


class ServerResponse(Protocol):
    """A whole response."""

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""

    def checked(self) -> Self:
        """The response itself.

        Raises:
            ResponseError: it is an error.
        """

    def result(self, placed: PlacedTensors | None = None) -> InferResult:
        """The outputs in it, and those that the server has ``placed``.

        Raises:
            ResponseError: it has none.
        """

    def read(self, question: PlainRequest) -> Any:
        """What it says of a question: objects and lists as over HTTP."""

    def agrees(self, question: PlainRequest) -> bool:
        """Whether it says yes."""


class ClientExchange(Protocol):
    """The requests of one connection, one at a time, without its socket."""

    def begin(self, request: Parts) -> None:
        """Begin a request."""

    def outgoing(self) -> Parts:
        """The bytes to send now; there may be more after the next ``feed``."""

    def feed(self, data: bytes) -> ServerResponse | None:
        """Take what has arrived; the response once it is whole.

        Raises:
            ConnectionFailedError: the bytes follow no protocol, or the server ends the connection.
        """

    def take_messages(self) -> Sequence[bytes]:
        """The whole messages of a stream that have come since the last call, without their prefixes."""

    def end(self) -> ServerResponse | None:
        """The connection has ended; the response, if that makes it whole."""


class ClientProtocol(Protocol):
    """The requests to one server as bytes."""

    def exchange(self) -> ClientExchange:
        """The state of a new connection."""

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        options: InferOptions,
        datatypes: Mapping[str, DataType],
        placed: PlacedTensors | None = None,
    ) -> Parts:
        """An inference request.

        Args:
            datatypes: of the inputs that are lists.
            placed: takes the large tensors; None for none.

        Raises:
            InvalidArgumentError: an input is no tensor of the protocol.
        """

    def stream(
        self, model: str, inputs: Mapping[str, Any], options: InferOptions, datatypes: Mapping[str, DataType]
    ) -> Parts:
        """An inference request with any number of responses; arguments and errors as ``infer``.

        Raises:
            InvalidArgumentError: the protocol has no such requests.
        """

    def plain(self, question: PlainRequest) -> Parts:
        """Another request."""
