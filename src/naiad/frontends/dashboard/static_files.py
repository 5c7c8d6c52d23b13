"""The files of the page, which are part of the wheel, and the headers that keep the page to itself."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Final

SECURITY_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # After an update of the server a browser must not mix files of both versions.
    ("Cache-Control", "no-cache"),
)
"""The headers of every response: scripts and styles come from files of this server, and nobody frames the page."""

INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def content_type(name: str) -> str:
    """The media type of the file ``name``; "" for a name that is no file of the page."""
    return _TYPES.get(name[name.rfind(".") :], "") if name in names() else ""


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """The names of the files; there are no folders."""
    return frozenset(entry.name for entry in files(__package__).joinpath("static").iterdir() if entry.is_file())


@lru_cache(maxsize=64)
def content(name: str) -> bytes:
    """The bytes of one of the files, which are read once."""
    return files(__package__).joinpath("static", name).read_bytes()
