"""Forwarding metadata of gRPC calls: the parameters of each request of a call get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from naiad.bounded_dict import BoundedDict
from naiad.engine.engine import Engine
from naiad.frontends.grpc.rpc.call import Body, Receiver, RpcCall
from naiad.frontends.grpc.v2.infer import GrpcInferHandler
from naiad.frontends.grpc.v2.infer_reader import Decoded, Decoder, RequestDecoder
from naiad.frontends.grpc.v2.stream import StreamService
from naiad.frontends.inference.header_forwarding import AddedParameters, HeaderForwarding
from naiad.lifecycle.memory.load_on_demand import LoadOnDemand
from naiad.wire.v2.long_contents import ReadContents

_OF_GRPC: Final = frozenset(("te", "content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding"))


MAX_CACHED: Final = 64
"""The heads with a cached handler."""


class ForwardingDecoder:
    """Reads the requests of calls with one head like ``decoder``, and gives them parameters from its metadata."""

    __slots__ = ("_added", "_decoder", "_forwarding", "_metadata")

    def __init__(self, decoder: Decoder, forwarding: HeaderForwarding, metadata: Mapping[str, str]) -> None:
        self._decoder = decoder
        self._forwarding = forwarding
        self._metadata = metadata
        self._added: AddedParameters | None = None

    @property
    def demand(self) -> LoadOnDemand | None:
        """As the decoder."""
        return self._decoder.demand

    def recall(self, message: Body) -> Decoded | None:
        """As the decoder; also raises InvalidArgumentError if a header has a reserved name."""
        found = self._decoder.recall(message)
        return None if found is None else self._with_headers(found)

    def read(self, message: Body, contents: ReadContents | None = None) -> Decoded:
        """As the decoder, and as ``recall``."""
        return self._with_headers(self._decoder.read(message, contents))

    def read_id(self, message: Body) -> str:
        """As the decoder."""
        return self._decoder.read_id(message)

    def _with_headers(self, found: Decoded) -> Decoded:
        added = self._added
        if added is None:
            # At the first request, since a reserved name is an error of each request and not of the call.
            added = self._added = AddedParameters(self._forwarding.choose(_headers(self._metadata)))
        model, remembered, inputs, request_id = found
        return model, added.added_to(remembered), inputs, request_id


class ForwardingInferHandler:
    """``GrpcInferHandler`` for a server that forwards metadata."""

    __slots__ = ("_decoder", "_forwarding", "_known", "_regions")

    def __init__(self, engine: Engine, forwarding: HeaderForwarding) -> None:
        self._regions = engine.regions
        self._decoder = RequestDecoder(engine, serves_decoupled=False)
        self._forwarding = forwarding
        # By the identity of the metadata, which calls with the same head share. The value refers to it, so that no
        # other object gets its identity.
        self._known: dict[int, tuple[Mapping[str, str], GrpcInferHandler]] = BoundedDict(MAX_CACHED)

    def __call__(self, call: RpcCall, message: Body) -> None:
        metadata = call.metadata
        kept = self._known.get(id(metadata)) or self._keep(metadata)
        kept[1](call, message)

    def _keep(self, metadata: Mapping[str, str]) -> tuple[Mapping[str, str], GrpcInferHandler]:
        handler = GrpcInferHandler(ForwardingDecoder(self._decoder, self._forwarding, metadata), self._regions)
        kept = self._known[id(metadata)] = metadata, handler
        return kept


class ForwardingStreamService(StreamService):
    """``StreamService`` for a server that forwards metadata."""

    def __init__(self, engine: Engine, max_waiting: int, forwarding: HeaderForwarding) -> None:
        super().__init__(engine, max_waiting)
        self._forwarding = forwarding

    def open(self, call: RpcCall) -> Receiver:
        """The receiver of a new call's requests."""
        return self.open_with(call, ForwardingDecoder(self.decoder, self._forwarding, call.metadata))


def _headers(metadata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The metadata of the caller, without the fields of gRPC itself."""
    return ((name, value) for name, value in metadata.items() if name not in _OF_GRPC and name[:1] != ":")
