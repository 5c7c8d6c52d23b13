"""``ModelInferRequest`` and ``ModelInferResponse`` as bytes: the fast path of requests whose inputs are all raw.

Clients write the fields of a request in the order of their numbers: the model's name and version, the id, the
description of the request, then the tensors. Such a request is cut into these parts without parsing them. The
description is the key of a cached ``ProtoPlan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from naiad.errors import InvalidArgumentError
from naiad.request import Array, Outputs
from naiad.tensor.dtypes import DataType
from naiad.wire.proto_fields import MAX_LENGTH, field, field_head, read_varint, varint
from naiad.wire.v2.classification import Classified
from naiad.wire.v2.parameters import FINAL, parameter_field, parameter_fields, parameters_of
from naiad.wire.v2.plan import InferPlan
from naiad.wire.v2.response import datatype_of, tensor_bytes

MAX_SCANNED_FIELDS: Final = 1024
_NAME_TAG, _VERSION_TAG = 0x0A, 0x12
ID_TAG: Final = 0x1A
_RAW_TAG: Final = 0x3A
_RAW_RANK: Final = 5
_DESCRIPTION_RANK: Final = 4
# The tags of a request's fields, all of variable size, by the part they belong to. Parts come in this order.
_RANKS: Final = {_NAME_TAG: 1, _VERSION_TAG: 2, ID_TAG: 3, 0x22: 4, 0x2A: 4, 0x32: 4, _RAW_TAG: _RAW_RANK}
_RAW_OUTPUT: Final = 6
_STREAMED_RESPONSE: Final = 2
_SHORT_LENGTH: Final = 127
_FINAL: Final = {final: parameter_field(FINAL, final) for final in (False, True)}


class Layout(NamedTuple):
    """The positions of the parts of a request, in the order of its bytes.

    Attributes:
        id_at: where the field of the id begins, after the model's name and version.
        key_at: where the description begins.
        raw_at: where the description ends and the field of the first raw tensor begins.
        raws: begin and end of the content of each raw tensor.
    """

    id_at: int
    key_at: int
    raw_at: int
    raws: Sequence[tuple[int, int]]

    def sizes(self) -> list[int]:
        """The bytes of each raw tensor."""
        return [end - begin for begin, end in self.raws]

    def read_id(self, message: bytes | bytearray | memoryview) -> str:
        """The id, "" when there is none.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
        """
        if self.id_at == self.key_at:
            return ""
        raw = bytes(message[self.id_at + 1 : self.key_at])
        return raw[read_varint(raw, 0)[1] :].decode()


def scan(message: bytes | bytearray | memoryview) -> Layout | None:
    """The parts of a request; None when its fields come in another order or encoding, or are too many."""
    ends = [0, 0, 0, 0, 0]
    raws: list[tuple[int, int]] = []
    at = rank = 0
    size = len(message)
    try:
        for _ in range(MAX_SCANNED_FIELDS):
            if at == size:
                break
            last, rank = rank, _RANKS.get(message[at], 0)
            # Of a name, version or id that is repeated protobuf takes the last; such requests are left to it.
            if rank < last or (rank == last and rank < _DESCRIPTION_RANK):
                return None
            length = message[at + 1]
            at += 2
            # Most lengths have one byte, which needs no call.
            if length > 127:
                length, at = _long_length(message, length, at)
            begin, at = at, at + length
            if rank == _RAW_RANK:
                raws.append((begin, at))
            else:
                ends[rank] = at
    except (IndexError, ValueError):
        return None
    # There are too many fields, or the last one runs past the end.
    if at != size:
        return None
    id_at = ends[2] or ends[1]
    key_at = ends[3] or id_at
    return Layout(id_at, key_at, ends[4] or key_at, raws)


def named_model(beginning: memoryview) -> tuple[str, str]:
    """Name and version of the model of a request that begins like this; both "" if they cannot be told from it."""
    found = {_NAME_TAG: "", _VERSION_TAG: ""}
    at = 0
    try:
        while (tag := beginning[at]) in found:
            end = at + 2 + beginning[at + 1]
            # The length of a longer name has more than one byte; the name may also be cut off here.
            if beginning[at + 1] > _SHORT_LENGTH or end >= len(beginning):
                return "", ""
            found[tag] = str(beginning[at + 2 : end], "utf-8")
            at = end
    except (IndexError, ValueError):
        return "", ""
    return found[_NAME_TAG], found[_VERSION_TAG]


def _long_length(message: bytes | bytearray | memoryview, low: int, at: int) -> tuple[int, int]:
    """A length of two to five bytes that begins with ``low``, and the position after it."""
    length = low & 127
    for shift in (7, 14, 21, 28):
        byte = message[at]
        at += 1
        length |= (byte & 127) << shift
        if byte < 128:
            # Protobuf also reads lengths with more bytes than needed; a plan has one key for each description.
            if byte == 0:
                break
            return length, at
    raise ValueError("not the shortest form of a length")


def raw_offsets(sizes: Iterable[int]) -> list[int]:
    """The offsets of raw tensors of these sizes after the description, each preceded by its field's head."""
    offsets: list[int] = []
    at = 0
    for size in sizes:
        at += len(field_head(7, size))
        offsets.append(at)
        at += size
    return offsets


class ProtoResponseHead:
    """The bytes around the id and the tensors of one kind of response.

    Attributes:
        before, after: the fields before the id, and the fields after it up to the content of the first tensor.
        between: for each further tensor, the head of its field.
        whole: ``before`` and ``after``, for a response without an id.
        size: the bytes of a whole response without an id.

    Raises:
        InvalidArgumentError: such a response is too large to be sent.
    """

    __slots__ = ("after", "before", "between", "size", "whole")

    def __init__(self, before: bytes, outputs: bytes, sizes: Sequence[int]) -> None:
        heads = [field_head(_RAW_OUTPUT, size) for size in sizes]
        self.before = before
        self.after = outputs + b"".join(heads[:1])
        self.between = heads[1:]
        self.whole = before + self.after
        self.size = _checked(len(before) + len(outputs) + sum(map(len, heads)) + sum(sizes))

    def parts(self, head: bytes, tensors: Sequence[Any]) -> Sequence[Any]:
        """A response in parts: ``head`` is everything before the content of the first tensor."""
        if not self.between:
            return (head, *tensors)
        parts = [head, tensors[0]]
        for between, tensor in zip(self.between, tensors[1:], strict=True):
            parts += (between, tensor)
        return parts


EncodedMessage = tuple[Sequence[Any], int]
"""A message: its parts, and the sum of their bytes."""


class ProtoPlan(InferPlan[ProtoResponseHead]):
    """A plan for requests of the message ``ModelInferRequest``."""

    __slots__ = ()

    def encode_response(self, request_id: str, outputs: Mapping[str, Array]) -> EncodedMessage:
        """A ``ModelInferResponse``, without a copy of the tensors. Missing outputs are left out.

        Raises:
            LargeClassesError: its classes would take too long.
            InvalidArgumentError: it is too large to be sent, or an output cannot be classified.
            BackendError: a parameter cannot be sent.
        """
        single = self._single
        if single is not None and not request_id and type(outputs) is not Outputs:
            # Most responses have one tensor and no id.
            array = outputs.get(single)
            cached = self._heads.get(array.shape) if array is not None and array.flags.c_contiguous else None
            if cached is not None:
                return (cached.whole, array), cached.size
        head, tensors = self._head(outputs)
        if not request_id:
            return head.parts(head.whole, tensors), head.size
        id_field = _id_field(request_id)
        text = head.before + id_field + head.after
        return head.parts(text, tensors), _checked(head.size + len(id_field))

    def streamed(self, request_id: str, outputs: Mapping[str, Array], final: bool = True) -> EncodedMessage:
        """A ``ModelStreamInferResponse`` with the same content; ``final``: no further response follows for the request.

        Raises:
            LargeClassesError: its classes would take too long.
            InvalidArgumentError: it is too large to be sent, or an output cannot be classified.
            BackendError: a parameter cannot be sent.
        """
        head, tensors = self._head(outputs)
        own = _FINAL[final] if not request_id else _id_field(request_id) + _FINAL[final]
        size = head.size + len(own)
        opening = field_head(_STREAMED_RESPONSE, size)
        text = b"".join((opening, head.before, own, head.after))
        return head.parts(text, tensors), _checked(len(opening) + size)

    def _head(self, outputs: Mapping[str, Array]) -> tuple[ProtoResponseHead, Sequence[Any]]:
        """The head for these outputs, and their contents as they are sent."""
        if not self.plain or type(outputs) is Outputs:
            return self._placed_head(outputs) or self._any_head(outputs)
        try:
            key, arrays = self.gather(outputs)
        except KeyError:
            return self._any_head(outputs)
        for array in arrays:
            # The memory of the array is sent as it is.
            if not array.flags.c_contiguous:
                return self._any_head(outputs)
        head = self._heads.get(key)
        if head is None:
            if not all(array.size for array in arrays):
                # An empty array may point to no memory at all.
                return self._any_head(outputs)
            head = self._make_head(key, arrays)
        return head, arrays

    def _make_head(self, key: object, arrays: Sequence[Array]) -> ProtoResponseHead:
        described = [output_field(n, self.dtypes[n], a.shape) for n, a in zip(self.outputs, arrays, strict=True)]
        head = ProtoResponseHead(self._opening(), b"".join(described), [a.nbytes for a in arrays])
        return self.cache_head(key, head)

    def _placed_head(self, outputs: Mapping[str, Array]) -> tuple[ProtoResponseHead, Sequence[Any]] | None:
        """``_head`` for outputs that are all in shared memory, of which only shapes are sent; None for others."""
        if len(self.placed) != len(self.outputs) or self.classes is not None or type(outputs) is not dict:
            return None
        try:
            key = tuple([outputs[name].shape for name in self.outputs])
        except KeyError:
            return None
        head = self._heads.get(key)
        if head is None:
            # Such a plan is not plain and caches no other heads.
            described = [output_field(n, self.dtypes[n], shape) for n, shape in zip(self.outputs, key, strict=True)]
            head = self.cache_head(key, ProtoResponseHead(self._opening(), b"".join(described), [0] * len(key)))
        return head, [b""] * len(key)

    def _any_head(self, outputs: Mapping[str, Array]) -> tuple[ProtoResponseHead, Sequence[Any]]:
        if self.classes is not None and not isinstance(outputs, Classified):
            outputs = self.classes.apply(outputs)
        parameters = parameter_fields(parameters_of(outputs))
        found = [(n, outputs[n], datatype_of(outputs[n], self.dtypes[n])) for n in self.outputs if n in outputs]
        # An output in shared memory is described, and has no bytes in the message.
        placed = self.placed
        tensors = [b"" if name in placed else tensor_bytes(array, dtype) for name, array, dtype in found]
        described = [output_field(name, dtype, array.shape) for name, array, dtype in found]
        return ProtoResponseHead(self._opening(), parameters + b"".join(described), [len(t) for t in tensors]), tensors

    def ended(self, request_id: str) -> EncodedMessage:
        """A ``ModelStreamInferResponse`` without a response: the end of the responses to the request."""
        own = field(1, self.model.encode()) + _FINAL[True]
        message = field(_STREAMED_RESPONSE, (own if not request_id else own + _id_field(request_id)))
        return (message,), len(message)

    def _opening(self) -> bytes:
        return field(1, self.model.encode()) + field(2, b"%d" % self.version)


def output_field(name: str, dtype: DataType, shape: Sequence[int]) -> bytes:
    """The description of an output: name, datatype and shape."""
    dims = b"".join(map(varint, shape))
    return field(5, field(1, name.encode()) + field(2, dtype.wire.encode()) + field(3, dims))


def _id_field(request_id: str) -> bytes:
    raw = request_id.encode()
    size = len(raw)
    return (b"\x1a%c%b" % (size, raw)) if size < 128 else field(3, raw)


def _checked(size: int) -> int:
    if size > MAX_LENGTH:
        raise InvalidArgumentError(f"Response has byte size {size} which exceeds gRPC's byte size limit {MAX_LENGTH}.")
    return size
