"""The path templates of a route's pattern, such as ``/v2/models/{model}/versions/{version}/infer``."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\(\?P<(?P<name>\w+)>[^()]*\)|(?P<open>\(\?:)|(?P<close>\)\??)|(?P<bar>\|)|(?P<any>\[\^/\]\+)"
    r"|\\(?P<escaped>[^\w])|(?P<literal>[\w/_-])"
)
# A variable part without a name is \0 until the part before it is known.
_UNNAMED: Final = re.compile(r"([^/]+)/\0")


def templates_of(pattern: str) -> tuple[str, ...]:
    """All templates of ``pattern``, shortest choice last.

    Named groups become parameters of their name, other variable parts are named after the part before them. Patterns
    may use the syntax of the table of routes only: names, ``[^/]+``, and groups with ``|`` and ``?``.

    Raises:
        ValueError: the pattern uses other syntax.
    """
    # Each level of groups has its finished alternatives, and all prefixes of the alternative that is being read.
    levels: list[tuple[list[str], list[str]]] = [([], [""])]
    position = 0
    while position < len(pattern):
        found = _TOKEN.match(pattern, position)
        if found is None:
            raise ValueError(f"{pattern}: {pattern[position:]!r} cannot be shown as a path")
        position = found.end()
        _take(found, levels)
    ((done, now),) = levels
    return tuple(_UNNAMED.sub(_named, template) for template in done + now)


def _take(found: re.Match[str], levels: list[tuple[list[str], list[str]]]) -> None:
    done, now = levels[-1]
    if found["open"]:
        levels.append(([], [""]))
    elif found["bar"]:
        levels[-1] = (done + now, [""])
    elif found["close"]:
        levels.pop()
        choices = done + now + ([""] if found["close"].endswith("?") else [])
        before, prefixes = levels[-1]
        levels[-1] = (before, [prefix + choice for prefix in prefixes for choice in choices])
    else:
        levels[-1] = (done, [prefix + _text(found) for prefix in now])


def _text(found: re.Match[str]) -> str:
    if found["name"]:
        return "{" + found["name"] + "}"
    return "\0" if found["any"] else found["escaped"] or found["literal"]


def _named(found: re.Match[str]) -> str:
    return f"{found[1]}/{{{found[1].removesuffix('s')}}}"
