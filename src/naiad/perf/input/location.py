"""Where in the data of the user something lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Location:
    """A step of a file; the text is how errors end."""

    file: Path
    stream: int = 0
    step: int = 0

    def __str__(self) -> str:
        # The words are the reference's, which some users search for.
        return f"( Location stream id: {self.stream}, step id: {self.step}) in '{self.file}'"
