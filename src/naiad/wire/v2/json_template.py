"""The fast path of a request with all its data in JSON: only the data are parsed.

Callers repeat the text around their data. A request that was parsed and checked in full leaves a template: that text
and its plan. For the next request with the same text only the lists are parsed and converted to arrays, and base64 text
is decoded where it stands. A request that fits no template, or has a wrong value in its data, is parsed in full, and
that parser raises the errors.

The result is that of parsing the whole: equal text brings a JSON parser to the same state, and any complete value
leaves it in the same state after the value. So do the characters of base64 inside a string.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from naiad.errors import NaiadError
from naiad.request import Array, memory_of
from naiad.tensor.dtypes import DataType
from naiad.wire.json_text import MAX_NESTING
from naiad.wire.v2.base64_text import decode_size
from naiad.wire.v2.binary import BinaryPlan
from naiad.wire.v2.header import InferHeader, InputHeader
from naiad.wire.v2.json import decode_data
from naiad.wire.v2.plan import MAX_PLAN_KEY, MAX_PLANS

MAX_SAME_OPENING: Final = 16
"""The most cached templates with the same text before the data. Where shapes come after the data, each shape has
one."""

# The space of JSON is less than that of regular expressions.
_ID: Final = re.compile(rb'\{[ \t\r\n]*"id"[ \t\r\n]*:[ \t\r\n]*"([ !#-\[\]-~]{0,256})"[ \t\r\n]*,')
"""An id at the beginning, without escapes or unusual characters."""
_ANOTHER_ID: Final = re.compile(rb'"id"[ \t\r\n]*:')
_DATA: Final = b'"data"'
_DATA_KEY: Final = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*')
# The possessive repeats never go back, so a long list takes linear time.
_LIST: Final = re.compile(rb'\[[^"{}]*\]|\[\s*+(?:"(?:[^"\\]|\\.)*+"[\s,]*+)*+\]', re.DOTALL)
"""Lists of numbers and booleans, nested in any way, or a flat list of strings."""
_OPENING: Final = re.compile(rb'(\{[ \t\r\n]*"b64"[ \t\r\n]*:[ \t\r\n]*)?"')
"""What stands before base64 text; the group is there where the text is the member of an object."""
_CLOSING: Final = re.compile(rb'"[ \t\r\n]*\}')
"""What stands behind it in an object: no second member, which would win over the first."""

# Floats are rounded, and refused where they overflow, just as numpy does it.
_FORMATS: Final = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "FP32": "f", "FP64": "d",
}  # fmt: skip

Body = bytes | bytearray


class Recalled(NamedTuple):
    """A request that fits a template; ``held_bytes`` is the memory of its body or of its inputs, whichever is
    larger.
    """

    id: str
    plan: BinaryPlan
    inputs: dict[str, Array]
    held_bytes: int


class Templates:
    """The templates for one loaded model, bounded in number and in length."""

    __slots__ = ("_by_opening", "_count", "_last")

    def __init__(self) -> None:
        # By the text up to the first data, without the id.
        self._by_opening: dict[bytes, list[_Template]] = {}
        self._count = 0
        self._last: _Template | None = None

    def recall(self, body: Body) -> Recalled | None:
        """The request that ``body`` is, JSON alone; None when it fits no template."""
        request_id, start = _cut_id(body)
        # Callers repeat one text, so the last template is tried before the others are searched.
        template = self._last
        spans = None if template is None else template.locate(body, start)
        if template is None or spans is None:
            template, spans = self._find(body, start)
            if template is None or spans is None:
                return None
            self._last = template
        inputs = template.read(body, spans)
        if inputs is None:
            return None
        size = template.tensor_bytes if template.tensor_bytes is not None else memory_of(inputs)
        return Recalled(request_id, template.plan, inputs, max(len(body), size))

    def learn(self, body: Body, header: InferHeader, plan: BinaryPlan) -> None:
        """Cache a template of a request that fits its model, if its text allows one."""
        request_id, start = _cut_id(body)
        # Any other id stands somewhere in the text, which would give each request the same one.
        if request_id != header.id or self._find(body, start)[0] is not None:
            return
        # Without inputs, all optional, nothing would tell the parts of the text apart.
        if not header.inputs or not all(given.elements and _has_simple_data(given) for given in header.inputs):
            return
        texts = _split(body, start, header.inputs)
        if texts is None or sum(map(len, texts)) > MAX_PLAN_KEY:
            return
        # Without escapes each member "data" shows as such. There are as many as inputs, and each input has one.
        if any(b"\\" in text or _ANOTHER_ID.search(text) for text in texts):
            return
        self._add(_Template(start > 0, texts, header.inputs, plan))

    def _find(self, body: Body, start: int) -> tuple[_Template | None, list[slice] | None]:
        """A template that a request fits, and where its data are."""
        first = body.find(_DATA, start)
        if 0 <= first - start <= MAX_PLAN_KEY:
            for template in self._by_opening.get(bytes(body[start:first]), ()):
                if (spans := template.locate(body, start)) is not None:
                    return template, spans
        return None, None

    def _add(self, template: _Template) -> None:
        if self._count >= MAX_PLANS:
            self._by_opening.clear()
            self._count = 0
        same = self._by_opening.setdefault(template.opening[: template.opening.find(_DATA)], [])
        # Each of them is tried in turn, so there are few.
        if len(same) >= MAX_SAME_OPENING:
            self._count -= len(same)
            same.clear()
        same.append(template)
        self._count += 1


class _Template:
    """The text around the data of a request, from after its id on, and the plan of such requests.

    ``opening`` is the text before the first data. ``tensor_bytes`` is the size of the inputs; None where it differs
    from request to request.
    """

    __slots__ = ("_between", "_closing", "_has_id", "_readers", "opening", "plan", "tensor_bytes")

    def __init__(self, has_id: bool, texts: Sequence[bytes], inputs: Sequence[InputHeader], plan: BinaryPlan) -> None:
        self._has_id = has_id
        self.opening, *self._between, self._closing = texts
        self._readers = [(given.name, _reader_of(given)) for given in inputs]
        self.plan = plan
        sizes = [given.elements * given.dtype.itemsize for given in inputs]
        self.tensor_bytes = sum(sizes) if all(sizes) else None

    def locate(self, body: Body, start: int) -> list[slice] | None:
        """Where the data of a request are; None when its text is another one. ``start``: the end of its id, or 0."""
        if not body.startswith(self.opening, start) or not body.endswith(self._closing):
            return None
        if (start > 0) is not self._has_id:
            return None
        at = start + len(self.opening)
        end = len(body) - len(self._closing)
        spans = []
        for between in self._between:
            # Found inside a string of the data, the text would cut a list that is no JSON: ``read`` refuses it.
            found = body.find(between, at, end)
            if found < 0:
                return None
            spans.append(slice(at, found))
            at = found + len(between)
        # Opening and closing may overlap: then there is nothing in between, which is no JSON.
        spans.append(slice(at, end))
        return spans

    def read(self, body: Body, spans: Sequence[slice]) -> dict[str, Array] | None:
        """The inputs of a request; None where something in its data is not as usual."""
        inputs = {}
        for (name, read), span in zip(self._readers, spans, strict=True):
            array = read(body, span)
            if array is None:
                return None
            inputs[name] = array
        return inputs


_Reader = Callable[[Body, slice], Array | None]


def _has_simple_data(given: InputHeader) -> bool:
    """Whether a reader can read its data: a list, or base64 text of numbers."""
    return given.data is not None or (given.base64 is not None and not given.dtype.is_bytes)


def _reader_of(given: InputHeader) -> _Reader:
    """The converter of one input's data from their place in a body; it returns None for anything unusual."""
    if given.base64 is not None:
        return _base64(given.dtype, given.shape, given.elements * given.dtype.itemsize)
    letter = _FORMATS.get(given.dtype.wire)
    return _others(given) if letter is None else _numbers(given.dtype, given.shape, f"<{given.elements}{letter}")


def _numbers(dtype: DataType, shape: tuple[int, ...], layout: str) -> _Reader:
    loads, empty, kind, pack_into = orjson.loads, np.empty, dtype.numpy, struct.Struct(layout).pack_into
    is_float = kind.kind == "f"

    def read(body: Body, span: slice) -> Array | None:
        text = body[span]
        # In JSON without these there is no true, null or false, of which numbers could be made.
        if b"u" in text or b"s" in text:
            return None
        # No number has these letters, and integers are never one of the words.
        has_words = is_float and (b"N" in text or b"I" in text)
        try:
            values = loads(_without_words(text) if has_words else text)
            # Nested lists are rare; most data are flat.
            if text.find(b"[", 1) > 0:
                # An empty string or object among the lists would vanish; in a flat list neither becomes a number.
                if b'"' in text or b"{" in text:
                    return None
                values = _flat(values)
            if has_words:
                values = _with_numbers(values, b"I" in text)
            array = empty(shape, kind)
            # Arrays have a buffer; typeshed does not know it before 3.12.
            pack_into(array, 0, *values)  # type: ignore[arg-type]
        except (ValueError, TypeError, OverflowError, struct.error):
            return None
        return array

    return read


def _without_words(text: Body) -> Body:
    """Strict JSON with a literal in place of each of the bare words NaN, Infinity and -Infinity."""
    if b"I" in text:
        text = text.replace(b"-Infinity", b"false").replace(b"Infinity", b"true")
    # Cut at single bytes, which is several times as fast as to replace a word.
    pieces = text.split(b"N")
    between = pieces[1::2]
    # Each word gives two cuts, with the "a" between them. Anything else is no JSON, which the parser finds.
    is_whole = len(pieces) == 2 * len(between) + 1 and between == [b"a"] * len(between)
    return b"null".join(pieces[::2]) if is_whole else text


def _with_numbers(values: list[Any], may_be_infinite: bool) -> list[Any]:
    """The values with the numbers of the literals of ``_without_words``."""
    nan, inf = math.nan, math.inf
    values = [nan if value is None else value for value in values]
    if may_be_infinite:
        values = [(inf if value else -inf) if type(value) is bool else value for value in values]
    return values


def _base64(dtype: DataType, shape: tuple[int, ...], size: int) -> _Reader:
    kind = dtype.numpy

    def read(body: Body, span: slice) -> Array | None:
        raw = decode_size(memoryview(body)[span], size)
        return None if raw is None else np.ndarray(shape, kind, raw)

    return read


def _flat(values: Any) -> list[Any]:
    """The elements of evenly nested lists; ``TypeError`` or ``ValueError`` for others."""
    for _ in range(MAX_NESTING):
        if not values or type(values[0]) is not list:
            return values  # type: ignore[no-any-return]
        values = list(chain.from_iterable(values))
    raise ValueError


def _others(given: InputHeader) -> _Reader:
    """For booleans and strings, checked as in a request that is read in full, but without an error."""
    name, dtype, shape, elements = given.name, given.dtype, given.shape, given.elements

    def read(body: Body, span: slice) -> Array | None:
        try:
            values = orjson.loads(body[span])
            return (
                decode_data(InputHeader(name, dtype, shape, elements, values, None)) if type(values) is list else None
            )
        except (orjson.JSONDecodeError, NaiadError):
            return None

    return read


def _cut_id(body: Body) -> tuple[str, int]:
    """The id with which a request begins, and where the rest does; "" and 0 without one."""
    found = _ID.match(body)
    return ("", 0) if found is None else (found[1].decode("ascii"), found.end())


def _split(body: Body, start: int, inputs: Sequence[InputHeader]) -> list[bytes] | None:
    """The text around the data of all members "data"; None where there are not as many as inputs, or one is unusual."""
    texts: list[bytes] = []
    while (key := _DATA_KEY.search(body, start)) is not None:
        span = _data_at(body, key.end(), inputs[len(texts)]) if len(texts) < len(inputs) else None
        if span is None:
            return None
        texts.append(bytes(body[start : span.start]))
        start = span.stop
    return [*texts, bytes(body[start:])] if len(texts) == len(inputs) else None


def _data_at(body: Body, at: int, given: InputHeader) -> slice | None:
    """Where the data of an input are whose member begins ``at``: a list, or base64 text without its quotation marks."""
    if given.base64 is None:
        found = _LIST.match(body, at)
        return slice(at, found.end()) if found is not None and _is_json(found[0]) else None
    opening = _OPENING.match(body, at)
    if opening is None:
        return None
    span = slice(opening.end(), opening.end() + len(given.base64))
    # Escapes would make the text in the body longer than the one that was parsed.
    if body[span] != given.base64.encode() or (opening[1] and not _CLOSING.match(body, span.stop)):
        return None
    return span


def _is_json(text: Body) -> bool:
    try:
        orjson.loads(_without_words(text))
    except orjson.JSONDecodeError:
        return False
    return True
