"""Forwarding metadata of gRPC calls: the parameters of each request of a call get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from naiad.engine.engine import Engine
from naiad.frontends.forwarding import HeaderForwarding
from naiad.frontends.grpc.call import Body, Call, Receiver
from naiad.frontends.grpc.infer import InferHandler
from naiad.frontends.grpc.infer_read import Decoded, Decoder, RequestDecoder
from naiad.frontends.grpc.stream import StreamService
from naiad.lifecycle.demand import Demand

_OF_GRPC: Final = frozenset(("te", "content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding"))


class ForwardingDecoder:
    """Reads the requests of one call like ``decoder``, and gives them parameters from the call's metadata."""

    __slots__ = ("_decoder", "_forwarding", "_metadata")

    def __init__(self, decoder: Decoder, forwarding: HeaderForwarding, metadata: Mapping[str, str]) -> None:
        self._decoder = decoder
        self._forwarding = forwarding
        self._metadata = metadata

    @property
    def demand(self) -> Demand | None:
        """As the decoder."""
        return self._decoder.demand

    def recall(self, message: Body) -> Decoded | None:
        """As the decoder; also raises InvalidArgumentError when a header has a reserved name."""
        found = self._decoder.recall(message)
        return None if found is None else self._with_headers(found)

    def read(self, message: Body) -> Decoded:
        """As the decoder, and as ``recall``."""
        return self._with_headers(self._decoder.read(message))

    def read_id(self, message: Body) -> str:
        """As the decoder."""
        return self._decoder.read_id(message)

    def _with_headers(self, found: Decoded) -> Decoded:
        chosen = self._forwarding.choose(_headers(self._metadata))
        if not chosen:
            return found
        model, remembered, inputs, request_id = found
        return model, remembered.with_parameters({**remembered.parameters, **chosen}), inputs, request_id


class ForwardingInferHandler:
    """``InferHandler`` for a server that forwards metadata."""

    __slots__ = ("_decoder", "_forwarding")

    def __init__(self, engine: Engine, forwarding: HeaderForwarding) -> None:
        self._decoder = RequestDecoder(engine, serves_decoupled=False)
        self._forwarding = forwarding

    def __call__(self, call: Call, message: Body) -> None:
        InferHandler(ForwardingDecoder(self._decoder, self._forwarding, call.metadata))(call, message)


class ForwardingStreamService(StreamService):
    """``StreamService`` for a server that forwards metadata."""

    def __init__(self, engine: Engine, max_waiting: int, forwarding: HeaderForwarding) -> None:
        super().__init__(engine, max_waiting)
        self._forwarding = forwarding

    def open(self, call: Call) -> Receiver:
        """A call has begun: who takes its requests."""
        return self.open_with(call, ForwardingDecoder(self.decoder, self._forwarding, call.metadata))


def _headers(metadata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What callers say, without what gRPC itself does."""
    return ((name, value) for name, value in metadata.items() if name not in _OF_GRPC and name[:1] != ":")
