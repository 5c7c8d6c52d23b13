"""Files that change under a running server."""

from __future__ import annotations

import os
from pathlib import Path


def put(path: Path, text: str) -> None:
    """Replace a file in one step, as tools for certificates do."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
