"""gRPC as a client speaks it: one call on a connection at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from naiad.bounded_dict import BoundedDict
from naiad.client.address import ServerAddress
from naiad.client.encode import InferOptions, check_headers, tensor_bytes
from naiad.client.grpc_exchange import GrpcExchange, own_headers
from naiad.client.grpc_messages import infer_start, message_class
from naiad.client.protocol import Parts, PlainRequest
from naiad.client.region import PlacedTensors
from naiad.errors import InvalidArgumentError
from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import DataType
from naiad.tensor.input_array import input_array
from naiad.wire.grpc.messages import prefix
from naiad.wire.proto_fields import field_head

_MAX_STARTS: Final = 1024
_RAW: Final = 7
_JOINED_BYTES: Final = 1 << 16


class GrpcProtocol:
    """The requests to one server as bytes.

    A request is the name of its call, the block of headers of its own, and the message with its prefix.
    """

    def __init__(self, address: ServerAddress, headers: Mapping[str, str]) -> None:
        check_headers(headers)
        self._headers = (
            (":method", "POST"),
            (":scheme", "http" if address.tls is None else "https"),
            (":authority", address.authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "naiad-client"),
            *((name.lower(), value) for name, value in headers.items()),
        )
        self._starts: dict[object, bytes] = BoundedDict(_MAX_STARTS)

    def exchange(self) -> GrpcExchange:
        """The state of a new connection."""
        return GrpcExchange(self._headers)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        options: InferOptions,
        datatypes: Mapping[str, DataType],
        placed: PlacedTensors | None = None,
    ) -> Parts:
        """A call of ``ModelInfer``; arguments and errors as ``RequestEncoder.infer``."""
        entries: list[tuple[str, str, tuple[int, ...], RegionRef | None]] = []
        parts: list[bytes | memoryview] = []
        for name, value in inputs.items():
            array, datatype = input_array(name, value, datatypes.get(name))
            data = tensor_bytes(array, datatype)
            place = None if placed is None else placed.place(data)
            entries.append((name, datatype.wire, array.shape, place))
            if place is None:
                parts += (field_head(_RAW, len(data)), data)
        outputs = options.outputs if placed is None or not placed.outputs else tuple(placed.outputs.items())
        key = (model, options.version, outputs, tuple(entries))
        is_common = not (options.request_id or options.parameters)
        start = self._starts.get(key) if is_common else None
        if start is None:
            start = infer_start(model, entries, outputs, options)
            if is_common:
                self._starts[key] = start
        size = len(start) + sum(map(len, parts))
        whole = [prefix.pack(0, size), start, *parts]
        message = [b"".join(whole)] if size <= _JOINED_BYTES else whole
        return [b"ModelInfer", own_headers(options.headers), *message]

    def stream(
        self, model: str, inputs: Mapping[str, Any], options: InferOptions, datatypes: Mapping[str, DataType]
    ) -> Parts:
        """A call of ``ModelStreamInfer`` with one request."""
        _, *message = self.infer(model, inputs, options, datatypes)
        return [b"ModelStreamInfer", *message]

    def plain(self, question: PlainRequest) -> Parts:
        """Another call.

        Raises:
            InvalidArgumentError: gRPC has no such call.
        """
        if not question.call:
            raise InvalidArgumentError(f"gRPC has no call for '{question.path}': use the server's HTTP address")
        message = message_class(f"{question.call}Request")(**question.fields).SerializeToString()
        return [question.call.encode(), own_headers(question.headers), prefix.pack(0, len(message)) + message]
