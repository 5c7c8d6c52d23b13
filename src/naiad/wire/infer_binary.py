"""The fast way of a request whose inputs are all binary: a plan per distinct JSON part, views into the body, and answer
heads that are kept.

Clients repeat themselves: a caller sends the same JSON part with other tensors behind it. What was read and checked
once is kept as an ``InferPlan`` under the exact bytes of that part, the request id left out, and serves until the model
goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from naiad.request import Array, Parameters, RequestTerms
from naiad.tensor.dtypes import DataType
from naiad.wire.infer_response import model_head, output_head

MAX_PLANS = 1024
MAX_PLAN_KEY = 4096
MAX_HEADS = 64
MAX_KEPT_ID = 256
_ID_OPENING = b'{"id":"'
_HTTP_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_ONE_WRITE_BYTES = 65536
_ndarray = np.ndarray


class BinaryInput(NamedTuple):
    """Where one input lies behind the JSON part: at ``offset`` bytes."""

    name: str
    dtype: np.dtype[np.generic]
    offset: int
    shape: tuple[int, ...]


class AnswerHead:
    """All of a plain answer before its tensors, but for the request id. ``is_small``: to be sent in one piece."""

    __slots__ = ("_before_id", "_binary_size", "_rest", "is_small", "without_id")

    def __init__(self, rest: bytes, binary_size: int) -> None:
        length = len(rest) + 1
        self.without_id = _HTTP_HEAD % (length, length + binary_size) + b"{" + rest
        self.is_small = length + binary_size < _ONE_WRITE_BYTES
        self._rest = b'",' + rest
        self._binary_size = binary_size
        self._before_id: dict[int, bytes] = {}

    def with_id(self, request_id: bytes) -> bytes:
        """The same with an id, which needs no escapes in JSON."""
        size = len(request_id)
        before = self._before_id.get(size)
        if before is None:
            length = len(_ID_OPENING) + size + len(self._rest)
            before = _HTTP_HEAD % (length, length + self._binary_size) + _ID_OPENING
            if size <= MAX_KEPT_ID:
                self._before_id[size] = before
        return before + request_id + self._rest


class InferPlan(RequestTerms):
    """All that is known about requests with one JSON part.

    Attributes:
        inputs: the binary inputs; ``size`` is their bytes together.
        dtypes, binary: of each requested output, its datatype and whether it is wanted as binary data.
        plain: every output is binary and of a type whose memory is its wire form: answers take the fast way.
    """

    __slots__ = ("_first", "_heads", "_single", "binary", "dtypes", "inputs", "model", "plain", "size", "version")

    def __init__(
        self,
        model: str,
        version: int,
        inputs: Sequence[BinaryInput],
        size: int,
        outputs: tuple[str, ...],
        dtypes: Mapping[str, DataType],
        binary: Mapping[str, bool],
        rows: int,
        shape_key: object,
        parameters: Parameters,
        priority: int,
        timeout_us: int,
    ) -> None:
        super().__init__(outputs, rows, shape_key, parameters, priority, timeout_us)
        self.model = model
        self.version = version
        self.inputs = tuple(inputs)
        self.size = size
        self.dtypes = dtypes
        self.binary = binary
        self.plain = all(binary[n] and not dtypes[n].is_bytes and dtypes[n].wire != "BF16" for n in outputs)
        self._single = outputs[0] if self.plain and len(outputs) == 1 else None
        self._first = self.inputs[0] if len(self.inputs) == 1 else None
        self._heads: dict[object, AnswerHead] = {}

    def views(self, body: bytes | bytearray | memoryview, start: int) -> dict[str, Array]:
        """The inputs as views into ``body``, whose JSON part ends at ``start``."""
        if self._first is not None:
            name, dtype, offset, shape = self._first
            return {name: _ndarray(shape, dtype, body, start + offset)}
        return {name: _ndarray(shape, dtype, body, start + offset) for name, dtype, offset, shape in self.inputs}

    def answer(self, request_id: str, outputs: Mapping[str, Array]) -> bytes | list[Any]:
        """A whole ``plain`` answer: in one piece when it is small, else its head and its tensors as they lie.

        Raises:
            BufferError, TypeError, ValueError: an array is not one row-major block of memory.
        """
        arrays: list[Array]
        if self._single is not None:
            array = outputs[self._single]
            arrays, key = [array], array.shape
        else:
            arrays = [outputs[name] for name in self.outputs]
            key = tuple([array.shape for array in arrays])
        head = self._heads.get(key) or self._make_head(key, arrays)
        text = head.with_id(request_id.encode()) if request_id else head.without_id
        if head.is_small:
            # bytes.join takes anything with a buffer; typeshed does not know that arrays have one before 3.12.
            return b"".join([text, *arrays])  # type: ignore[list-item]
        return [text, *[array.data.cast("B") for array in arrays]]

    def _make_head(self, key: object, arrays: Sequence[Array]) -> AnswerHead:
        texts = [
            b'%s,"parameters":{"binary_data_size":%d}}' % (output_head(n, self.dtypes[n], a.shape), a.nbytes)
            for n, a in zip(self.outputs, arrays, strict=True)
        ]
        rest = model_head(self.model, self.version) + b",".join(texts) + b"]}"
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        head = self._heads[key] = AnswerHead(rest, sum(a.nbytes for a in arrays))
        return head


class PlanMemo:
    """Plans by the exact bytes of the JSON part without its id; bounded in number and in key length."""

    __slots__ = ("_plans", "get")

    def __init__(self) -> None:
        self._plans: dict[bytes, InferPlan] = {}
        self.get = self._plans.get

    def keep(self, key: bytes, plan: InferPlan) -> None:
        """Keep a plan, unless its key is long; all others are forgotten when there are too many."""
        if len(key) > MAX_PLAN_KEY:
            return
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan

    def __len__(self) -> int:
        return len(self._plans)


def split_id(header: bytes) -> tuple[str, bytes]:
    """The request id and the rest of a JSON part that begins with it, as clients write it; else "" and the whole.

    An id with escapes or unusual characters is left in place: the rest is then read as JSON in full.
    """
    if not header.startswith(_ID_OPENING):
        return "", header
    end = header.find(b'"', 7)
    raw = header[7:end]
    if end < 8 or not raw.isascii() or b"\\" in raw:
        return "", header
    request_id = raw.decode("ascii")
    if not request_id.isprintable() or header[end + 1 : end + 2] != b",":
        return "", header
    return request_id, header[end + 1 :]
