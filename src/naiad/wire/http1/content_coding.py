"""Content codings of HTTP: the coding of a body, the choice for a response, and the head of an encoded response.

Source: RFC 9110, sections 8.4 and 12.5.3. The accepted coding with the highest weight is chosen, the first of equal
ones. ``*`` is ignored, as the reference does.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.compression import WINDOW_BITS

IDENTITY: Final = "identity"
ACCEPTED: Final = ", ".join(WINDOW_BITS)
_MEMBER = re.compile(r"\s*([^\s;,]+)\s*(?:;\s*q\s*=\s*([01](?:\.[0-9]{0,9})?)\s*)?", re.IGNORECASE)
_LENGTH: Final = b"content-length:"


def best_coding(accepted: str) -> str:
    """The coding for responses to a caller that sent ``Accept-Encoding: accepted``. Malformed items are skipped."""
    best, weight = IDENTITY, 0.0
    for member in accepted.split(","):
        found = _MEMBER.fullmatch(member)
        name = found[1].lower() if found else ""
        # A weight of 0 refuses a coding, and never exceeds the first weight.
        if found and (name in WINDOW_BITS or name == IDENTITY) and float(found[2] or 1) > weight:
            best, weight = name, float(found[2] or 1)
    return best


def coded_head(head: bytes, coding: str, length: int) -> bytes:
    """A response head, with its empty line, changed for a body of ``length`` bytes in a content coding."""
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(_LENGTH)]
    lines += (b"Content-Encoding: " + coding.encode(), b"Content-Length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"
