"""Reading the body of a request to load a model without holding the event loop up.

Files come as base64 inside the JSON. A JSON parser takes a tenth of a second for a large file, and the loop serves
nothing meanwhile. So the content of large files is cut out first; it has no escapes, so its end is easy to find.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from naiad.errors import MalformedRequestError
from naiad.frontends.http.server.exchange import Body

LARGE: Final = 1 << 16
MAX_KEYS: Final = 4096
"""The keys that are looked at; files behind these are left to the parser."""
MAX_SPACE: Final = 64
"""The white space that may stand around a colon; behind more of it, the parser reads the content."""
MAX_COMMAS: Final = 100_000
"""The commas that the rest may have: the parser makes about as many values, one by one."""
_KEY: Final = b'"file:'
_WHITE: Final = frozenset((b" ", b"\t", b"\r", b"\n"))


def read_object(body: Body) -> tuple[dict[str, Any], list[memoryview]]:
    """The JSON object of a body, empty for an empty body, and the contents that were cut out of it.

    ``place(number)`` stands in the place of each content.

    Raises:
        MalformedRequestError: the body is no JSON object, or has far too many values.
    """
    if not body:
        return {}, []
    cut: list[memoryview] = []
    raw: Body = body
    if len(body) > LARGE:
        raw, cut = _cut(bytes(body))
        if (commas := raw.count(b",")) > MAX_COMMAS:
            raise MalformedRequestError(
                f"the body has {commas} commas outside of large files, at most {MAX_COMMAS} are allowed: send fewer "
                "values"
            )
    try:
        root = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise MalformedRequestError(f"failed to parse the request JSON buffer: {error.msg} at {error.pos}") from None
    if not isinstance(root, dict):
        raise MalformedRequestError("Unable to parse the body: expected a JSON object, such as {}")
    return root, cut


def place(number: int) -> str:
    """The text in the place of the content ``number``, which no base64 can contain."""
    return f"\0{number}"


def _cut(raw: bytes) -> tuple[bytes, list[memoryview]]:
    """The JSON without the contents of large files, and these contents."""
    whole = memoryview(raw)
    kept: list[bytes | memoryview] = []
    cut: list[memoryview] = []
    done = at = looked_at = 0
    while looked_at < MAX_KEYS and (key := raw.find(_KEY, at)) >= 0:
        looked_at += 1
        begin, end = _content(raw, key)
        # Behind the content: no key is searched for within a large file.
        at = max(end, key + 1)
        if end - begin > LARGE:
            kept += (whole[done:begin], orjson.dumps(place(len(cut)))[1:-1])
            cut.append(whole[begin:end])
            done = end
    return b"".join((*kept, whole[done:])), cut


def _content(raw: bytes, key: int) -> tuple[int, int]:
    """The begin and end of the text that belongs to the key at ``key``; ``(0, 0)`` where they are not obvious."""
    nowhere = 0, 0
    key_end = raw.find(b'"', key + 1)
    colon = _after_space(raw, key_end + 1)
    opening = _after_space(raw, colon + 1)
    if key_end < 0 or raw[colon : colon + 1] != b":" or raw[opening : opening + 1] != b'"':
        return nowhere
    end = raw.find(b'"', opening + 1)
    # A quotation mark behind a backslash is no end. Base64 needs no escapes; with them, the parser reads it.
    is_plain = end >= 0 and raw.find(b"\\", max(0, key - 1), end) < 0
    return (opening + 1, end) if is_plain else nowhere


def _after_space(raw: bytes, at: int) -> int:
    limit = at + MAX_SPACE
    while at < limit and raw[at : at + 1] in _WHITE:
        at += 1
    return at
