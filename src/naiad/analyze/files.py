"""Files that are written as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file and its folder: whoever is interrupted, or has no room, leaves the file as it was.

    Raises:
        OSError: it cannot be written; its ``filename`` is the file's.
    """
    partial = file.with_name(f".{file.name}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content.encode() if isinstance(content, str) else content)
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        # A full disk has no name in its error, and the one of the partial file says nothing to people.
        raise OSError(error.errno, error.strerror or str(error), str(file)) from None
