"""Reading the body of a request to load a model without holding the event loop up.

Files come as base64 inside the JSON. A JSON parser takes a tenth of a second for a large one, and nobody else is served
meanwhile. So the content of large files is cut out first; it has no escapes, which makes its end easy to find.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from naiad.errors import MalformedRequestError
from naiad.frontends.http.infer_read import Body

LARGE: Final = 1 << 16
_KEY: Final = b'"file:'
_WHITE: Final = frozenset((b" ", b"\t", b"\r", b"\n"))


def read_object(body: Body) -> tuple[dict[str, Any], list[memoryview]]:
    """The JSON object of a body, empty for none, and the contents that were cut out of it.

    In their places are the texts that ``place`` gives for their numbers.

    Raises:
        MalformedRequestError: it is no JSON object.
    """
    if not body:
        return {}, []
    cut: list[memoryview] = []
    raw: bytes | Body = body
    if len(body) > LARGE:
        raw, cut = _cut(bytes(body))
    try:
        root = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise MalformedRequestError(f"failed to parse the request JSON buffer: {error.msg} at {error.pos}") from None
    if not isinstance(root, dict):
        raise MalformedRequestError("Unable to parse the body: expected a JSON object, such as {}")
    return root, cut


def place(number: int) -> str:
    """What stands in the place of the content ``number``."""
    return f"\0{number}"


def _cut(raw: bytes) -> tuple[bytes, list[memoryview]]:
    """The JSON without the contents of large files, and those."""
    whole = memoryview(raw)
    kept: list[bytes | memoryview] = []
    cut: list[memoryview] = []
    done = at = 0
    while (key := raw.find(_KEY, at)) >= 0:
        begin, end = _content(raw, key)
        at = max(end, key + 1)
        if end - begin > LARGE:
            kept += (whole[done:begin], orjson.dumps(place(len(cut)))[1:-1])
            cut.append(whole[begin:end])
            done = end
    return b"".join((*kept, whole[done:])), cut


def _content(raw: bytes, key: int) -> tuple[int, int]:
    """Where the text begins and ends that belongs to the key at ``key``; nowhere when it is not plain to see."""
    nowhere = 0, 0
    key_end = raw.find(b'"', key + 1)
    colon = _after_space(raw, key_end + 1)
    opening = _after_space(raw, colon + 1)
    if key_end < 0 or raw[colon : colon + 1] != b":" or raw[opening : opening + 1] != b'"':
        return nowhere
    end = raw.find(b'"', opening + 1)
    # Behind a backslash a quotation mark is no end; and whoever escapes base64 gets it read by the parser.
    is_plain = end >= 0 and raw.find(b"\\", max(0, key - 1), end) < 0
    return (opening + 1, end) if is_plain else nowhere


def _after_space(raw: bytes, at: int) -> int:
    while raw[at : at + 1] in _WHITE:
        at += 1
    return at
