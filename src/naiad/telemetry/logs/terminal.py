"""Log records as a person at a terminal reads them: the time of day, the level, and lines as lines.

Whatever a message quotes of requests or models reaches the terminal as text: control characters are shown, not obeyed.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Final, TextIO

# Line separators and the marks that change the direction of writing are among them: they rearrange a line.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_DIM, _YELLOW, _RED, _RESET = "\x1b[2m", "\x1b[33m", "\x1b[1;31m", "\x1b[0m"
_LEVELS: Final = (
    (logging.ERROR, "error", _RED),
    (logging.WARNING, "warning", _YELLOW),
    (logging.INFO, "info", ""),
    (0, "verbose", _DIM),
)
_FURTHER_LINE: Final = re.compile(r"\n(?=[^\n])")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal that a person reads."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def wants_colours(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is to show colours: not with NO_COLOR (no-color.org), nor where it has none."""
    return not environ.get("NO_COLOR") and environ.get("TERM") not in (None, "", "dumb")


def format_for_terminal(record: logging.LogRecord, message: str, table: str, *, coloured: bool) -> str:
    """One record, with its newline; further lines of ``message`` are indented, ``table`` stands below as it is."""
    name, colour = next((name, colour) for level, name, colour in _LEVELS if record.levelno >= level)
    moment = time.strftime("%H:%M:%S", time.localtime(record.created))
    shown = _FURTHER_LINE.sub("\n    ", _without_controls(message).rstrip("\n"))
    below = _without_controls(table)
    if not coloured:
        return f"{moment} {name:<7} {shown}\n{below}"
    head = f"{colour}{name:<7}{_RESET}" if colour else f"{name:<7}"
    return f"{_DIM}{moment}{_RESET} {head} {shown}\n{below}"


def _without_controls(text: str) -> str:
    return _CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
