"""HTTP/1.1 as a client speaks it: one request on a connection at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naiad.client.encode import InferOptions, RequestEncoder
from naiad.client.protocol import Parts, PlainRequest
from naiad.client.region import PlacedTensors
from naiad.client.response import ClientResponseReader, WholeResponse
from naiad.errors import InvalidArgumentError
from naiad.tensor.dtypes import DataType


class HttpExchange:
    """The requests of one connection, without its socket."""

    def __init__(self) -> None:
        self._reader: ClientResponseReader | None = None
        self._request: Parts = ()

    def begin(self, request: Parts) -> None:
        """Begin a request."""
        self._reader = ClientResponseReader()
        self._request = request

    def outgoing(self) -> Parts:
        """The bytes to send now."""
        request, self._request = self._request, ()
        return request

    def feed(self, data: bytes) -> WholeResponse | None:
        """Take what has arrived; the response once it is whole."""
        return None if self._reader is None else self._reader.feed(data)

    def take_messages(self) -> tuple[bytes, ...]:
        """Nothing: there are no streams."""
        return ()

    def end(self) -> WholeResponse | None:
        """The connection has ended; the response, if that makes it whole."""
        return None if self._reader is None else self._reader.end()


class HttpProtocol:
    """The requests to one server as bytes, and its responses."""

    def __init__(self, authority: str, headers: Mapping[str, str]) -> None:
        self._encoder = RequestEncoder(authority, headers)

    def exchange(self) -> HttpExchange:
        """The state of a new connection."""
        return HttpExchange()

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        options: InferOptions,
        datatypes: Mapping[str, DataType],
        placed: PlacedTensors | None = None,
    ) -> Parts:
        """An inference request; errors as ``RequestEncoder.infer``."""
        return self._encoder.infer(model, inputs, options, datatypes, placed)

    def stream(
        self, model: str, inputs: Mapping[str, Any], options: InferOptions, datatypes: Mapping[str, DataType]
    ) -> Parts:
        """Never returns."""
        raise InvalidArgumentError("a stream of responses needs gRPC: use the address grpc://host:8001")

    def plain(self, question: PlainRequest) -> Parts:
        """Another request."""
        return (self._encoder.plain(question.method, question.path, question.body, question.headers),)
