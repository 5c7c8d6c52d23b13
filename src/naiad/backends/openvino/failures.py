"""OpenVINO's own words about a failure, without the places in its source."""

from __future__ import annotations

import re
from typing import Final

_PLACES: Final = re.compile(r"(\[ \w+ \] )?Exception from \S+:\d+:|Check '.*' failed at \S+:\d+:")
_MOST_CHARACTERS: Final = 600


def reason(error: BaseException) -> str:
    """The lines of a failure that say something, as one line."""
    text = str(error)
    return " ".join(_PLACES.sub("", text).split())[:_MOST_CHARACTERS] or text or type(error).__name__
