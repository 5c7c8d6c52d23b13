"""gRPC as a client speaks it: one call on a connection at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hpack import Encoder

from naiad.bounded_dict import BoundedDict
from naiad.client.address import ServerAddress
from naiad.client.encode import InferOptions, check_headers, tensor_bytes
from naiad.client.grpc_exchange import GrpcExchange
from naiad.client.grpc_messages import infer_start, message_class
from naiad.client.protocol import Parts, PlainRequest
from naiad.tensor.dtypes import DataType
from naiad.tensor.input_array import input_array
from naiad.wire.grpc.messages import prefix
from naiad.wire.grpc.paths import INFERENCE, path
from naiad.wire.proto_fields import field_head

_MAX_STARTS: Final = 1024
_RAW: Final = 7
_JOINED_BYTES: Final = 1 << 16


class GrpcProtocol:
    """The requests to one server as bytes. A request is its block of headers and the message with its prefix."""

    def __init__(self, address: ServerAddress, headers: Mapping[str, str]) -> None:
        check_headers(headers)
        self._headers = [
            (":method", "POST"),
            (":scheme", "http" if address.tls is None else "https"),
            (":authority", address.authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "naiad-client"),
            *((name.lower(), value) for name, value in headers.items()),
        ]
        self._blocks: dict[str, bytes] = {}
        self._starts: dict[object, bytes] = BoundedDict(_MAX_STARTS)

    def exchange(self) -> GrpcExchange:
        """The state of a new connection."""
        return GrpcExchange()

    def infer(
        self, model: str, inputs: Mapping[str, Any], options: InferOptions, datatypes: Mapping[str, DataType]
    ) -> Parts:
        """A call of ``ModelInfer``; arguments and errors as ``RequestEncoder.infer``."""
        entries: list[tuple[str, str, tuple[int, ...]]] = []
        parts: list[bytes | memoryview] = []
        for name, value in inputs.items():
            array, datatype = input_array(name, value, datatypes.get(name))
            data = tensor_bytes(array, datatype)
            entries.append((name, datatype.wire, array.shape))
            parts += (field_head(_RAW, len(data)), data)
        key = (model, options.version, options.outputs, tuple(entries))
        is_common = not options.request_id and not options.parameters
        start = self._starts.get(key) if is_common else None
        if start is None:
            start = infer_start(model, entries, options)
            if is_common:
                self._starts[key] = start
        size = len(start) + sum(map(len, parts))
        whole = [prefix.pack(0, size), start, *parts]
        return [self._block("ModelInfer"), *([b"".join(whole)] if size <= _JOINED_BYTES else whole)]

    def plain(self, question: PlainRequest) -> Parts:
        """Another call."""
        message = message_class(f"{question.call}Request")(**question.fields).SerializeToString()
        return [self._block(question.call), prefix.pack(0, len(message)) + message]

    def _block(self, call: str) -> bytes:
        """The headers of a call, which are the same bytes whenever they are sent: the server has seen them before."""
        found = self._blocks.get(call)
        if found is None:
            encoder = Encoder()
            # Without a table a block does not depend on those before it.
            encoder.header_table_size = 0
            found = self._blocks[call] = encoder.encode([(":path", path(INFERENCE, call)), *self._headers])
        return found
