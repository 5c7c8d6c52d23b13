"""The status codes of gRPC and how a status text travels.

Source: gRPC's "Status codes and their use" and "gRPC over HTTP/2" (Status-Message is percent-encoded UTF-8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

# A space at an end is escaped as well: RFC 9113, section 8.2.1, has none there.
_UNSAFE = re.compile(rb"[^ -$&-~]|\A | \Z")
MAX_TEXT_BYTES = 4096
"""Longer texts are cut: with the other trailers they must fit the header lists that clients take (8 KiB)."""
STOPPING = "GRPC server is shutting down and has stopped accepting new requests."
"""The text for new calls, with status UNAVAILABLE, once the server stops. Source: the reference's text."""
NO_MESSAGE = "the request has no message"


class Status(IntEnum):
    """The codes, by their names in gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


def shorten_text(text: str) -> str:
    """A status text that UTF-8 can carry, cut so that ``encode_text`` of it has at most ``MAX_TEXT_BYTES`` bytes.

    The middle is cut out: the end of a traceback names the exception.
    """
    text = text.encode("utf-8", "replace").decode()
    if len(_escape(text)) <= MAX_TEXT_BYTES:
        return text
    room = (MAX_TEXT_BYTES - len("...")) // 2
    return f"{text[: _fitting(text, room)]}...{text[len(text) - _fitting(reversed(text), room) :]}"


def _fitting(characters: Iterable[str], room: int) -> int:
    """How many of the characters fit ``room`` bytes once they are encoded."""
    count = 0
    for character in characters:
        room -= len(_escape(character))
        if room < 0:
            break
        count += 1
    return count


def encode_text(text: str) -> bytes:
    """A status text as the value of ``grpc-message``: percent-encoded UTF-8, cut when it is too long."""
    encoded = _escape(text)
    return encoded if len(encoded) <= MAX_TEXT_BYTES else _escape(shorten_text(text))


def _escape(text: str) -> bytes:
    return _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], text.encode("utf-8", "replace"))
