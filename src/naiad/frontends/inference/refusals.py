"""Which request an error belongs to: its id beside the response, and a line in the verbose log."""

from __future__ import annotations

import logging
import re
from typing import Final

import orjson

from naiad.errors import NaiadError
from naiad.request import InferRequest
from naiad.telemetry.logs.server_log import request_log

logger = logging.getLogger("naiad")

ID_FIELD: Final = "inference-request-id"
"""The header of an HTTP error response, or the trailing metadata of a failed call, with the id of the request."""
MAX_ID: Final = 256
_MAX_READ: Final = 1 << 16
"""A longer JSON part is not read again for the id of a request that is refused."""
# All but visible ASCII, and the sign that begins an escape.
_ESCAPED: Final = re.compile(rb"[^!-$&-~]")


def id_field(request_id: str) -> tuple[str, str]:
    """The field with an id: its first 256 characters, percent-encoded where they are not visible ASCII."""
    raw = request_id[:MAX_ID].encode("utf-8", "backslashreplace")
    return ID_FIELD, _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")


def id_of(owner: object) -> str:
    """The id of the request that owns an exchange or a call; "" where none does."""
    return owner.id if isinstance(owner, InferRequest) else ""


def id_in_json(body: bytes | bytearray | memoryview, json_bytes: int | None) -> str:
    """The id in a request body whose first ``json_bytes`` are JSON (None: all); "" where it cannot be read."""
    size = len(body) if json_bytes is None else json_bytes
    if not 0 < size <= min(len(body), _MAX_READ):
        return ""
    try:
        found = orjson.loads(memoryview(body)[:size])
    except orjson.JSONDecodeError:
        return ""
    request_id = found.get("id", "") if isinstance(found, dict) else ""
    return request_id if isinstance(request_id, str) else ""


def log_refusal(error: NaiadError, request_id: str, model: str = "") -> None:
    """Log that a request was refused before its model had it, for ``--log-verbose`` 1 and above."""
    request_log(logger, logging.DEBUG, request_id, "refused for model '%s': %s", model, error, model=model)
