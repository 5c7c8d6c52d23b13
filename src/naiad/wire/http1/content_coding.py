"""Content codings of HTTP: which one a body has, which one an answer may have, and a head that says so.

Source: RFC 9110, sections 8.4 and 12.5.3. Of what a caller accepts the coding with the highest weight is taken, the
first of equal ones; ``*`` counts for nothing, as in the reference.
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
    """The coding for answers to a caller that sent ``Accept-Encoding: accepted``. What cannot be read is left out."""
    best, weight = IDENTITY, 0.0
    for member in accepted.split(","):
        found = _MEMBER.fullmatch(member)
        name = found[1].lower() if found else ""
        if found and (name in WINDOW_BITS or name == IDENTITY) and float(found[2] or 1) > weight:
            best, weight = name, float(found[2] or 1)
    return best


def coded_head(head: bytes, coding: str, length: int) -> bytes:
    """A response head, with its empty line, for the same answer in a coding, ``length`` bytes then."""
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(_LENGTH)]
    lines += (b"Content-Encoding: " + coding.encode(), b"Content-Length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"
