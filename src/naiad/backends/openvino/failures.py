"""OpenVINO's own words about a failure, without the places in its source."""

from __future__ import annotations

import re
from typing import Final

_PLACE: Final = re.compile(r"^(Exception from |\[ \w+ \] Exception from |Check '.*' failed at |While validating node )")
_MOST_CHARACTERS: Final = 400


def reason(error: BaseException) -> str:
    """The lines of a failure that say something, as one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not _PLACE.match(line)] or [line for line in lines if line][-1:]
    return " ".join(kept)[:_MOST_CHARACTERS] or type(error).__name__
