"""Log records as lines of JSON, for programs that collect logs (``--log-format=json``)."""

from __future__ import annotations

import logging
from typing import Any, Final

import orjson

from naiad.telemetry.logs.moments import iso_text

REQUEST_ID: Final = "naiad_request_id"
REQUEST_IDS: Final = "naiad_request_ids"
MODEL: Final = "naiad_model"
"""Attributes of a record, where they are known: the id of a request ("" without one), those of several, a model."""

_LEVELS: Final = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"), (0, "verbose"))


def format_as_json(record: logging.LogRecord, message: str, exception: str, table: str) -> str:
    """One record as an object in one line, with its newline.

    Args:
        message: the text of the message.
        exception: the traceback that belongs to it, "" for none.
        table: lines that belong below it, "" for none.
    """
    found: dict[str, Any] = {
        "time": iso_text(record.created),
        "level": level_name(record.levelno),
        "process": record.process,
        "thread": record.threadName,
        "file": record.filename,
        "line": record.lineno,
        "message": message,
    }
    known = (
        ("request_id", getattr(record, REQUEST_ID, "")),
        ("request_ids", getattr(record, REQUEST_IDS, [])),
        ("model", getattr(record, MODEL, "")),
        ("exception", exception),
        ("table", table),
    )
    found.update((name, value) for name, value in known if value)
    try:
        line = orjson.dumps(found)
    except TypeError:
        # Text that UTF-8 does not have, such as bytes of a file name that are no text.
        line = orjson.dumps(_in_utf8(found))
    return line.decode() + "\n"


def level_name(level: int) -> str:
    """The name of a ``logging`` level: error, warning, info or verbose."""
    return next(name for least, name in _LEVELS if level >= least)


def _in_utf8(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_utf8(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_in_utf8(item) for item in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
