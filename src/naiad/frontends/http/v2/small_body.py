"""The small JSON object of a request that changes settings, asks for the index or unloads a model."""

from __future__ import annotations

from typing import Any, Final

from naiad.errors import InvalidArgumentError, MalformedRequestError
from naiad.frontends.http.server.exchange import Body
from naiad.frontends.http.v2.load_body import read_object

MAX_BYTES: Final = 1 << 16
"""More than any settings need, and small enough to parse on the event loop."""


def check_size(body: Body) -> None:
    """Refuse a body that would take long to read.

    Raises:
        InvalidArgumentError: the body is larger than ``MAX_BYTES``.
    """
    if len(body) > MAX_BYTES:
        raise InvalidArgumentError(f"the body has {len(body)} bytes, expected a JSON object of up to {MAX_BYTES} bytes")


def read_settings(body: Body) -> dict[str, Any]:
    """The settings by name.

    Raises:
        InvalidArgumentError: as ``check_size``.
        MalformedRequestError: it is no JSON object.
    """
    check_size(body)
    if not body:
        raise MalformedRequestError(
            "failed to parse the request JSON buffer: the body is empty, expected a JSON object"
        )
    return read_object(body)[0]
