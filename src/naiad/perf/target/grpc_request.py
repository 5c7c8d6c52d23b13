"""Inference requests of the KServe protocol v2 over gRPC as bytes, made once and sent many times."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from naiad.bounded_dict import BoundedDict
from naiad.perf.settings import TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.address import Address
from naiad.perf.target.protocol import TargetError
from naiad.shared_memory.region import RegionRef
from naiad.wire.compression import compress
from naiad.wire.grpc.messages import prefix
from naiad.wire.http2 import frames
from naiad.wire.proto_fields import field, field_head, varint
from naiad.wire.v2.parameters import parameter_entry
from naiad.wire.v2.region_parameters import region_parameters

_LEVEL: Final = 6
_MAX_IDS: Final = 1024
# Fields of ModelInferRequest, its tensors and its parameters (the protocol's grpc_service.proto).
_MODEL, _VERSION, _PARAMETERS, _INPUTS, _OUTPUTS, _RAW = 1, 2, 4, 5, 6, 7
_NAME, _DATATYPE, _SHAPE = 1, 2, 3
_INPUT_PARAMETERS, _OUTPUT_PARAMETERS = 4, 2
_data_head = struct.Struct(">IB")


class GrpcRequestBytes:
    """A message with its prefix.

    Attributes:
        data_head: the head of a DATA frame that holds all of it and ends the stream, without the stream's number.
        index: which of the steps it was made from.
        keeps_body: whether its response is looked at.
        expected: the outputs that the response must have; empty when any will do.
        body: the last response, where ``keeps_body`` is true.
    """

    __slots__ = ("body", "data_head", "expected", "index", "keeps_body", "message", "size")

    def __init__(
        self, message: bytes, index: int = 0, expected: Sequence[TensorValue] = (), *, keeps_body: bool = False
    ) -> None:
        self.message = message
        self.size = len(message)
        self.data_head = _data_head.pack((len(message) << 8 | frames.DATA) & 0xFFFFFFFF, frames.END_STREAM)
        self.index = index
        self.expected = expected
        self.keeps_body = keeps_body or bool(expected)
        self.body = b""

    @property
    def last_response(self) -> bytes:
        """The last response."""
        return self.body


class GrpcRequestWriter:
    """Writes the requests for one model.

    Args:
        compression: none, gzip or deflate.
        parameters: of every request.
        keeps_responses: whether responses are kept for an export.
    """

    def __init__(
        self,
        model: ModelDescription,
        version: str,
        compression: str,
        parameters: Mapping[str, Any],
        *,
        keeps_responses: bool = False,
    ) -> None:
        self._keeps_responses = keeps_responses
        outputs = b"".join(field(_OUTPUTS, field(_NAME, output.name.encode())) for output in model.outputs)
        given = b"".join(parameter_field(name, value) for name, value in parameters.items())
        self._start = field(_MODEL, model.name.encode()) + field(_VERSION, version.encode()) + given
        self._outputs = outputs
        self._compression = compression
        self._ids: dict[int, bytes] = BoundedDict(_MAX_IDS)

    def place_outputs(self, places: Mapping[str, RegionRef]) -> None:
        """Have the outputs written to shared memory in all requests that are encoded from now on."""
        self._outputs = b"".join(
            field(_OUTPUTS, field(_NAME, name.encode()) + _region_fields(_OUTPUT_PARAMETERS, place))
            for name, place in places.items()
        )

    def encode(self, step: Step, index: int) -> EncodedGrpcStep:
        """The bytes of a step."""
        inputs = b"".join(map(_input_field, step.inputs))
        # Tensors in shared memory are left out, without a gap.
        datas = [value.data for value in step.inputs if value.region is None]
        raws = b"".join([part for data in datas for part in (field_head(_RAW, len(data)), data)])
        return EncodedGrpcStep(self, inputs + self._outputs + raws, step, index)

    def sequence_id(self, sequence: int) -> bytes:
        """The parameter that names a sequence."""
        found = self._ids.get(sequence)
        if found is None:
            found = self._ids[sequence] = parameter_field("sequence_id", sequence)
        return found

    def request(self, step: Step, index: int, rest: bytes, parameters: bytes = b"") -> GrpcRequestBytes:
        """A request of a step from its tensors and parameters."""
        frame = self.frame(rest, parameters)
        return GrpcRequestBytes(frame, index, step.expected, keeps_body=self._keeps_responses)

    def frame(self, rest: bytes, parameters: bytes) -> bytes:
        """A whole message with its prefix."""
        return framed(self._start + parameters + rest, self._compression)


class EncodedGrpcStep:
    """A step as bytes; its requests in sequences are put together when they are needed."""

    __slots__ = ("_index", "_rest", "_step", "_writer", "plain")

    def __init__(self, writer: GrpcRequestWriter, rest: bytes, step: Step, index: int) -> None:
        self._writer = writer
        self._rest = rest
        self._step = step
        self._index = index
        self.plain = writer.request(step, index, rest)

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> GrpcRequestBytes:
        """The step as a request of a sequence."""
        parameters = self._writer.sequence_id(sequence) + _PLACES[is_first, is_last]
        return self._writer.request(self._step, self._index, self._rest, parameters)


def call_headers(path: str, address: Address, settings: TargetSettings) -> list[tuple[str, str]]:
    """Name and value of each header of a call, pseudo-headers first, as HTTP/2 wants them."""
    compression = settings.compression
    return [
        (":method", "POST"),
        (":scheme", "http" if address.tls is None else "https"),
        (":path", path),
        (":authority", address.authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "naiad-perf"),
        *([("grpc-encoding", compression)] if compression != "none" else []),
        *((name.lower(), value) for name, value in settings.headers),
    ]


def framed(message: bytes, compression: str) -> bytes:
    """A message with its prefix, compressed where ``compression`` is not none."""
    if compression != "none":
        message = compress([message], compression, _LEVEL)
    return prefix.pack(compression != "none", len(message)) + message


def _input_field(value: TensorValue) -> bytes:
    shape = b"".join(varint(size) for size in value.shape)
    place = b"" if value.region is None else _region_fields(_INPUT_PARAMETERS, value.region)
    return field(
        _INPUTS,
        field(_NAME, value.name.encode()) + field(_DATATYPE, value.datatype.encode()) + field(_SHAPE, shape) + place,
    )


def _region_fields(number: int, place: RegionRef) -> bytes:
    return b"".join(parameter_field(name, value, number) for name, value in region_parameters(place).items())


def parameter_field(name: str, value: Any, number: int = _PARAMETERS) -> bytes:
    """One entry of the map ``parameters``, which is the field ``number``.

    Raises:
        TargetError: the protocol has no parameters of that type.
    """
    found = parameter_entry(name, value, number)
    if found is None:
        raise TargetError(
            f"the request parameter '{name}' is {repr(value)[:80]}, expected a bool, a string of Unicode "
            "characters or a number of 64 bits"
        )
    return found


_PLACES: Final = {
    (is_first, is_last): parameter_field("sequence_start", is_first) + parameter_field("sequence_end", is_last)
    for is_first in (False, True)
    for is_last in (False, True)
}
