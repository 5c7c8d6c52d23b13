"""Messages of gRPC as a client writes and reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.bounded_dict import BoundedDict
from naiad.client.encode import InferOptions, WantedOutput
from naiad.client.errors import ResponseError
from naiad.client.protocol import PlainRequest
from naiad.client.region import PlacedTensors
from naiad.client.result import Array, InferResult, tensor_array
from naiad.config.messages import message_class as protocol_message
from naiad.errors import InvalidArgumentError
from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.wire.grpc.messages import PREFIX_BYTES, prefix
from naiad.wire.grpc.status import Status
from naiad.wire.proto_fields import field, read_varint, varint
from naiad.wire.v2.parameters import parameter_entry
from naiad.wire.v2.region_parameters import region_parameters

PACKAGE: Final = "inference"
# Fields of ModelInferRequest, ModelInferResponse, their tensors and parameters (grpc_service.proto).
_MODEL, _VERSION, _ID, _PARAMETERS, _INPUTS, _OUTPUTS = range(1, 7)
_NAME, _DATATYPE, _SHAPE = 1, 2, 3
_INPUT_PARAMETERS, _OUTPUT_PARAMETERS = 4, 2
_RAW_TAG: Final = 6 << 3 | 2
# Fields of ModelStreamInferResponse.
_STREAM_ERROR_TAG: Final = 1 << 3 | 2
_STREAM_RESPONSE_TAG: Final = 2 << 3 | 2
_MAX_LAYOUTS: Final = 1024
_MAX_LAYOUT_BYTES: Final = 4096
_HTTP_STATUS: Final = {1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 12: 501, 14: 503, 16: 401}


def message_class(name: str) -> Any:
    """The class of a message of the protocol."""
    return protocol_message(name, PACKAGE)


# Requests


def infer_start(
    model: str,
    entries: Iterable[tuple[str, str, tuple[int, ...], RegionRef | None]],
    outputs: Iterable[WantedOutput],
    options: InferOptions,
) -> bytes:
    """A ``ModelInferRequest`` without its raw tensors, which come behind.

    Args:
        entries: name, datatype, shape and place in a region of each input; None for one whose elements come behind.
        outputs: the wanted ones.

    Raises:
        InvalidArgumentError: the protocol has no parameters of a value's type.
    """
    inputs = (
        field(
            _INPUTS,
            field(_NAME, name.encode())
            + field(_DATATYPE, datatype.encode())
            + field(_SHAPE, _packed(shape))
            + _region(place, _INPUT_PARAMETERS),
        )
        for name, datatype, shape, place in entries
    )
    return b"".join(
        (
            field(_MODEL, model.encode()),
            field(_VERSION, options.version.encode()),
            field(_ID, options.request_id.encode()),
            *(_parameter(name, value) for name, value in options.parameters.items()),
            *inputs,
            *(field(_OUTPUTS, _wanted(output)) for output in outputs),
        )
    )


def _wanted(output: WantedOutput) -> bytes:
    name, place = (output, None) if isinstance(output, str) else output
    return field(_NAME, name.encode()) + _region(place, _OUTPUT_PARAMETERS)


def _region(place: RegionRef | None, number: int) -> bytes:
    """The parameters in the field ``number`` for a tensor in a region."""
    if place is None:
        return b""
    return b"".join(parameter_entry(name, value, number) or b"" for name, value in region_parameters(place).items())


def _packed(shape: tuple[int, ...]) -> bytes:
    return b"".join(map(varint, shape))


def _parameter(name: str, value: Any) -> bytes:
    found = parameter_entry(name, value)
    if found is None:
        raise InvalidArgumentError(
            f"the parameter '{name}' is {repr(value)[:80]}, expected a bool, a string of Unicode "
            "characters or a number of 64 bits"
        )
    return found


# Responses


class GrpcResponse(NamedTuple):
    """How a call has ended: its status, and its message with the prefix.

    Attributes:
        code, text: of the status.
        message: empty for an error.
        closes: the connection carries no further call.
    """

    code: int
    text: str
    message: bytes
    closes: bool

    def checked(self) -> GrpcResponse:
        """The response itself.

        Raises:
            ResponseError: it is an error.
        """
        if self.code:
            name = Status(self.code).name if self.code in Status.__members__.values() else f"code {self.code}"
            raise ResponseError(_HTTP_STATUS.get(self.code, 500), self.text or f"gRPC status {name}")
        return self

    def result(self, placed: PlacedTensors | None = None) -> InferResult:
        """The outputs in it, and those that the server has ``placed``.

        Raises:
            ResponseError: it has none.
        """
        try:
            return _read_result(self._body(), placed)
        except (ValueError, KeyError, IndexError, InvalidArgumentError) as error:
            raise ResponseError(200, f"the server responded with something else than outputs: {error!r}") from None

    def read(self, question: PlainRequest) -> Any:
        """What it says, as over HTTP."""
        found = plain_value(message_class(f"{question.call}Response").FromString(self._body()))
        # Messages that HTTP writes without the one field that they have.
        return found.get("models", []) if question.call == "RepositoryIndex" else found.get("config", found)

    def agrees(self, question: PlainRequest) -> bool:
        """Whether the question's flag is set."""
        return bool(self.read(question).get(question.flag, False))

    def _body(self) -> bytes:
        if len(self.message) < PREFIX_BYTES:
            raise ResponseError(200, "the server responded without a message")
        is_compressed, size = prefix.unpack_from(self.message)
        if is_compressed or size != len(self.message) - PREFIX_BYTES:
            raise ResponseError(200, "the server responded with a compressed message, or with several")
        return self.message[PREFIX_BYTES:]


def stream_result(body: bytes) -> InferResult:
    """The outputs in a ``ModelStreamInferResponse``.

    Raises:
        ResponseError: it is an error, or none of this protocol.
    """
    try:
        error, response = "", b""
        at = 0
        while at < len(body):
            tag, at = read_varint(body, at)
            size, at = read_varint(body, at)
            if tag == _STREAM_ERROR_TAG:
                error = body[at : at + size].decode()
            elif tag == _STREAM_RESPONSE_TAG:
                response = body[at : at + size]
            at += size
        if not error:
            return _read_result(response, None)
    except (ValueError, KeyError, IndexError, InvalidArgumentError) as failure:
        raise ResponseError(200, f"the server responded with something else than outputs: {failure!r}") from None
    raise ResponseError(500, error)


class _GrpcLayout(NamedTuple):
    model: str
    version: str
    id: str
    parameters: Mapping[str, Any]
    outputs: tuple[tuple[str, DataType, tuple[int, ...]], ...]


_layouts: dict[bytes, _GrpcLayout] = BoundedDict(_MAX_LAYOUTS)


class _OneOutput(NamedTuple):
    """A response with one output: all before its elements, and what that says."""

    start: bytes
    layout: _GrpcLayout


_one_outputs: dict[int, _OneOutput] = BoundedDict(_MAX_LAYOUTS)
"""By the size of the response. The start ends with the size of the elements: others that have it differ in them."""


def _read_result(body: bytes, placed: PlacedTensors | None) -> InferResult:
    known = _one_outputs.get(len(body)) if placed is None else None
    if known is None or not body.startswith(known.start):
        return _read_any_result(body, placed)
    layout = known.layout
    name, datatype, shape = layout.outputs[0]
    array = tensor_array(name, datatype, shape, body, len(known.start), len(body))
    return InferResult(layout.model, layout.version, layout.id, layout.parameters, {name: array})


def _read_any_result(body: bytes, placed: PlacedTensors | None) -> InferResult:
    raws, begin = _raw_parts(body)
    header = body[:begin]
    layout = _layouts.get(header)
    if layout is None:
        message = message_class("ModelInferResponse").FromString(header)
        layout = _layout(message)
        if placed is None and len(raws) != len(message.outputs):
            return _typed_result(message)
        if begin <= _MAX_LAYOUT_BYTES and not layout.id:
            _layouts[header] = layout
    if placed is not None and placed.outputs:
        return _placed_result(layout, body, raws, placed)
    if len(raws) != len(layout.outputs):
        raise ValueError(f"{len(layout.outputs)} outputs with {len(raws)} contents")
    if len(raws) == 1 and begin <= _MAX_LAYOUT_BYTES and not layout.id:
        _one_outputs[len(body)] = _OneOutput(body[: raws[0][0]], layout)
    outputs = {
        name: tensor_array(name, datatype, shape, body, *place)
        for (name, datatype, shape), place in zip(layout.outputs, raws, strict=True)
    }
    return InferResult(layout.model, layout.version, layout.id, layout.parameters, outputs)


def _placed_result(
    layout: _GrpcLayout, body: bytes, raws: Sequence[tuple[int, int]], placed: PlacedTensors
) -> InferResult:
    # Contents of outputs in a region are empty or left out, as the server likes.
    are_all_there = len(raws) == len(layout.outputs)
    sent, outputs = iter(raws), {}
    for name, datatype, shape in layout.outputs:
        if placed.outputs.get(name) is None:
            outputs[name] = tensor_array(name, datatype, shape, body, *next(sent, (0, 0)))
            continue
        if are_all_there:
            next(sent)
        outputs[name] = placed.output(name, datatype, shape)
    return InferResult(layout.model, layout.version, layout.id, layout.parameters, outputs)


def _raw_parts(body: bytes) -> tuple[list[tuple[int, int]], int]:
    """Where the raw contents of a response lie, and where the first of them begins with its tag.

    They are the last fields, as all writers of protobuf put fields in the order of their numbers.
    """
    raws: list[tuple[int, int]] = []
    at, begin = 0, len(body)
    while at < len(body):
        start = at
        tag, at = read_varint(body, at)
        if tag & 7 != 2:
            raise ValueError(f"a field of wire type {tag & 7} at byte {start}")
        size, at = read_varint(body, at)
        if at + size > len(body):
            raise ValueError(f"the field at byte {start} is cut off")
        if tag == _RAW_TAG:
            begin = min(begin, start)
            raws.append((at, at + size))
        elif raws:
            raise ValueError(f"a field behind the contents at byte {start}")
        at += size
    return raws, begin


def _layout(message: Any) -> _GrpcLayout:
    outputs = tuple((o.name, BY_WIRE[o.datatype], tuple(o.shape)) for o in message.outputs)
    return _GrpcLayout(message.model_name, message.model_version, message.id, _parameters(message.parameters), outputs)


def _typed_result(message: Any) -> InferResult:
    """A response whose elements are fields of protobuf, as servers other than Naiad and Triton may write."""
    layout = _layout(message)
    outputs = {output.name: _typed_array(output) for output in message.outputs}
    return InferResult(layout.model, layout.version, layout.id, layout.parameters, outputs)


def _typed_array(output: Any) -> Array:
    datatype = BY_WIRE[output.datatype]
    for _, values in output.contents.ListFields():
        if datatype.is_bytes:
            made = np.empty(len(values), object)
            made[:] = list(values)
            return made.reshape(output.shape)
        return np.array(values, datatype.numpy).reshape(output.shape)
    return np.empty(0, datatype.numpy).reshape(output.shape)


def _parameters(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(p, p.WhichOneof("parameter_choice")) for name, p in found.items() if p.ListFields()}


def plain_value(message: Any) -> dict[str, Any]:
    """A message as objects and lists, numbers as numbers and enumerations by name, without what is not set."""
    return {descriptor.name: _field_value(descriptor, value) for descriptor, value in message.ListFields()}


def _field_value(descriptor: Any, value: Any) -> Any:
    kind = descriptor.message_type
    if kind is not None and kind.GetOptions().map_entry:
        values = kind.fields_by_name["value"]
        return {key: _single_value(values, value[key]) for key in value}
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return _single_value(descriptor, value)
    return [_single_value(descriptor, one) for one in value]


def _single_value(descriptor: Any, value: Any) -> Any:
    if descriptor.message_type is not None:
        return plain_value(value)
    if descriptor.enum_type is not None:
        return descriptor.enum_type.values_by_number[value].name
    return value
