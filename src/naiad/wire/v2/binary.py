"""Plans of HTTP requests: one per distinct JSON part, with cached heads of responses, binary and in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from naiad.bounded_dict import BoundedDict
from naiad.request import Array
from naiad.wire.v2.json import encode_numbers
from naiad.wire.v2.plan import MAX_HEADS, InferPlan
from naiad.wire.v2.response import model_head, output_head, response_opening

MAX_CACHED_ID = 256
_ID_OPENING = b'{"id":"'
_NO_JSON = b"\0"
_JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_HTTP_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_ONE_WRITE_BYTES = 65536


class BinaryResponseHead:
    """A plain response up to its tensors, without the request id. ``is_small``: it is sent in one piece."""

    __slots__ = ("_before_id", "_binary_size", "_rest", "is_small", "without_id")

    def __init__(self, rest: bytes, binary_size: int) -> None:
        length = len(rest) + 1
        self.without_id = _HTTP_HEAD % (length, length + binary_size) + b"{" + rest
        self.is_small = length + binary_size < _ONE_WRITE_BYTES
        self._rest = b'",' + rest
        self._binary_size = binary_size
        # By the length of the id, on which both lengths in the head depend.
        self._before_id: dict[int, bytes] = {}

    def with_id(self, request_id: bytes) -> bytes:
        """The same with an id, which needs no escapes in JSON."""
        size = len(request_id)
        before = self._before_id.get(size)
        if before is None:
            length = len(_ID_OPENING) + size + len(self._rest)
            before = _HTTP_HEAD % (length, length + self._binary_size) + _ID_OPENING
            if size <= MAX_CACHED_ID:
                self._before_id[size] = before
        return before + request_id + self._rest


class BinaryPlan(InferPlan[BinaryResponseHead]):
    """A plan for requests with one JSON part.

    ``in_json``: every output is sent as a list of numbers inside the JSON of the response.
    """

    __slots__ = ("_json_texts", "_placed_responses", "in_json")

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        kinds = [self.dtypes[name] for name in self.outputs]
        self.in_json = (
            self.classes is None
            and not self.placed
            and not self.base64
            and not any(self.binary[name] for name in self.outputs)
            and all(kind.in_json and not kind.is_bytes for kind in kinds)
        )
        # ``gather`` has a shorter path for one output, which plain plans take already.
        if self.in_json and len(self.outputs) == 1:
            self._single = self.outputs[0]
        # By the shapes of the outputs: the text before the data of each; none where the outputs are large.
        self._json_texts: dict[object, list[bytes]] = BoundedDict(MAX_HEADS)
        # By the shapes of the outputs: a response without an id, and the text after an id.
        self._placed_responses: dict[object, tuple[bytes, bytes]] = BoundedDict(MAX_HEADS)

    def _begin_heads(self) -> None:
        super()._begin_heads()
        # New ones, because the copy of a plan shares those of its original, and texts contain the version.
        self._placed_responses = BoundedDict(MAX_HEADS)
        self._json_texts = BoundedDict(MAX_HEADS)

    def encode_json_response(
        self, request_id: str, outputs: Mapping[str, Array], large_bytes: int
    ) -> bytes | list[Any] | None:
        """A whole response whose outputs are all ``in_json``; ``request_id`` needs no escapes in JSON.

        None when an output is missing or has another datatype than configured, or when they have ``large_bytes``.
        """
        try:
            key, arrays = self.gather(outputs)
        except KeyError:
            return None
        texts = self._json_texts.get(key)
        if texts is None:
            texts = self._make_texts(key, arrays, large_bytes)
        if len(texts) < len(arrays):
            return None
        pieces = [b'{"id":"', request_id.encode(), b'",'] if request_id else [b"{"]
        for name, text, array in zip(self.outputs, texts, arrays, strict=True):
            # Looked at each time: a Python model may send another datatype than the configured one.
            if array.dtype != self.dtypes[name].numpy:
                return None
            pieces.append(text)
            pieces.append(encode_numbers(array))
        pieces.append(b"}]}")
        json = b"".join(pieces)
        head = _JSON_HEAD % len(json)
        return head + json if len(json) < _ONE_WRITE_BYTES else [head, json]

    def _make_texts(self, key: object, arrays: Sequence[Array], large_bytes: int) -> list[bytes]:
        texts: list[bytes] = []
        sizes = [a.size * self.dtypes[n].itemsize for n, a in zip(self.outputs, arrays, strict=True)]
        if sum(sizes) < large_bytes:
            before = model_head(self.model, self.version)
            for name, array in zip(self.outputs, arrays, strict=True):
                texts.append(before + output_head(name, self.dtypes[name], array.shape) + b',"data":')
                before = b"},"
        self._json_texts[key] = texts
        return texts

    def encode_placed_response(self, request_id: str, outputs: Mapping[str, Array]) -> bytes | None:
        """A whole response whose outputs are all in shared memory; None when another output is among them.

        ``outputs`` have the configured datatypes.
        """
        if len(self.placed) != len(self.outputs):
            return None
        try:
            key = tuple([outputs[name].shape for name in self.outputs])
        except KeyError:
            return None
        cached = self._placed_responses.get(key) or self._make_placed(key)
        if not request_id:
            return cached[0]
        json = b"%s%s" % (response_opening(request_id), cached[1])
        return _JSON_HEAD % len(json) + json

    def _make_placed(self, key: Sequence[tuple[int, ...]]) -> tuple[bytes, bytes]:
        texts = [output_head(n, self.dtypes[n], shape) + b"}" for n, shape in zip(self.outputs, key, strict=True)]
        rest = model_head(self.model, self.version) + b",".join(texts) + b"]}"
        cached = self._placed_responses[key] = (_JSON_HEAD % (len(rest) + 1) + b"{" + rest, rest)
        return cached

    def encode_response(self, request_id: str, outputs: Mapping[str, Array]) -> bytes | list[Any]:
        """A whole ``plain`` response: in one piece when it is small, else its head and its tensors without a copy.

        Raises:
            BufferError, TypeError, ValueError: an array is not one row-major block of memory.
        """
        key, arrays = self.gather(outputs)
        head = self._heads.get(key) or self._make_head(key, arrays)
        text = head.with_id(request_id.encode()) if request_id else head.without_id
        if head.is_small:
            # bytes.join takes anything with a buffer; typeshed does not know that arrays have one before 3.12.
            return b"".join([text, *arrays])  # type: ignore[list-item]
        return [text, *[array.data.cast("B") for array in arrays]]

    def _make_head(self, key: object, arrays: Sequence[Array]) -> BinaryResponseHead:
        texts = [
            b'%s,"parameters":{"binary_data_size":%d}}' % (output_head(n, self.dtypes[n], a.shape), a.nbytes)
            for n, a in zip(self.outputs, arrays, strict=True)
        ]
        rest = model_head(self.model, self.version) + b",".join(texts) + b"]}"
        return self.cache_head(key, BinaryResponseHead(rest, sum(a.nbytes for a in arrays)))


def split_id(header: bytes) -> tuple[str, bytes]:
    """The request id and the rest of a JSON part that begins with it, as clients write it; else "" and the whole.

    Some clients write an empty id where they have none. An id with escapes or unusual characters is left in place: the
    rest is then read as JSON in full. Bytes that begin like such a rest have another one.
    """
    if not header.startswith(_ID_OPENING):
        # A JSON part never begins as the rest of one does: bytes that do must not be taken for such a rest.
        return "", header if header[:1] != b"," else _NO_JSON + header
    end = header.find(b'"', 7)
    raw = header[7:end]
    if end < 7 or not raw.isascii() or b"\\" in raw:
        return "", header
    request_id = raw.decode("ascii")
    if not request_id.isprintable() or header[end + 1 : end + 2] != b",":
        return "", header
    return request_id, header[end + 1 :]
