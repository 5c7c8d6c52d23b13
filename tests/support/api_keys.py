"""Keys of callers."""

from __future__ import annotations

import hashlib


def hashed(key: str) -> str:
    """A key as the server's options and files name it."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()
