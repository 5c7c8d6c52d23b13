"""The folder of what Naiad keeps over restarts and could make anew."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """``~/.cache/naiad/<kind>``, or where ``XDG_CACHE_HOME`` says; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "naiad" / kind
