"""The memo of a request: with it the next request like it needs no parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naiad.execution.model.interface import ServingModel
from naiad.frontends.grpc.rpc.call import Body
from naiad.wire.proto_fields import field_head
from naiad.wire.v2.header import InputHeader
from naiad.wire.v2.proto import ID_TAG, Layout, ProtoPlan, raw_offsets

_RAW_INPUT: Final = 7
_SHORT_ID: Final = 128


class Remembered:
    """The requests that differ from a known one only in their id and in the content of their tensors.

    Attributes:
        model, version: the model that serves them, and the version as they name it.
        plan: their plan.
        inputs: their inputs, all raw except those in regions.
        varies: ``match`` finds none of them, because the sizes of their tensors differ from request to request, or some
            inputs are raw and others in regions.
    """

    __slots__ = (
        "_after_id", "_before_id", "_first", "_further", "_reach", "_size", "_sizes", "_whole",
        "inputs", "model", "plan", "varies", "version",
    )  # fmt: skip

    def __init__(
        self,
        message: Body,
        layout: Layout,
        model: ServingModel,
        version: str,
        plan: ProtoPlan,
        inputs: Sequence[InputHeader],
    ) -> None:
        self.model = model
        self.version = version
        self.plan = plan
        self.inputs = inputs
        self.varies = any(i.dtype.is_bytes or plan.regions is not None for i in inputs)
        # Any size fits strings: -1.
        self._sizes = [-1 if i.dtype.is_bytes else i.binary_size for i in inputs]
        sizes = [i.binary_size or 0 for i in inputs]
        heads = [field_head(_RAW_INPUT, size) for size in sizes]
        name = bytes(message[: layout.id_at])
        # One comparison covers the description and the head of the first tensor, which has a fixed size.
        self._after_id = bytes(message[layout.key_at : layout.raw_at]) + b"".join(heads[:1])
        self._before_id = name + bytes((ID_TAG,))
        self._whole = name + self._after_id
        self._reach = len(self._whole) + _SHORT_ID + 2
        self._first = len(b"".join(heads[:1]))
        begins = [offset - self._first for offset in raw_offsets(sizes)]
        self._further = [(at - len(head), at, head) for at, head in zip(begins[1:], heads[1:], strict=True)]
        self._size = sum(sizes) + sum(map(len, heads[1:]))

    def fits(self, sizes: Sequence[int]) -> bool:
        """Whether the raw tensors of a request with the same description have the expected sizes."""
        return len(sizes) == len(self._sizes) and all(
            wanted in (-1, size) for wanted, size in zip(self._sizes, sizes, strict=True)
        )

    def match(self, message: Body) -> tuple[int, str] | None:
        """The offset where the tensors of a request begin, each with the head of its field, and the request's id.

        None if the request is no such one, or has a long id.
        """
        # A view cannot be compared with startswith; only the beginning is copied.
        text = bytes(message[: self._reach]) if type(message) is memoryview else message
        if text.startswith(self._whole):
            start, request_id = len(self._whole), ""
        elif text.startswith(self._before_id):
            begin = len(self._before_id) + 1
            # A length below 128 is one byte of varint; longer ids take the slower path.
            length = text[begin - 1] if len(text) >= begin else _SHORT_ID
            start = begin + length
            if length >= _SHORT_ID or not text.startswith(self._after_id, start):
                return None
            try:
                request_id = text[begin:start].decode()
            except UnicodeDecodeError:
                return None
            start += len(self._after_id)
        else:
            return None
        if start + self._size != len(message):
            return None
        # The further tensors lie at fixed distances, but their heads must be where they should.
        for begin, end, head in self._further:
            if message[start + begin : start + end] != head:
                return None
        return start - self._first, request_id


def memo_key(message: Body, layout: Layout) -> bytes:
    """The bytes of a request without its id and its tensors: two requests with the same key share a memo."""
    return bytes(message[: layout.id_at]) + bytes(message[layout.key_at : layout.raw_at])


def memo_key_size(layout: Layout) -> int:
    """The length of that key."""
    return layout.id_at + layout.raw_at - layout.key_at
