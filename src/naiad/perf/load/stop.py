"""The user's wish to end a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stop:
    """Set when the user wants the run to end."""

    is_wanted: bool = False
