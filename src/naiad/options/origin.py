"""Origins of browser pages: ``https://host:port``."""

from __future__ import annotations

import re
from typing import Final

from naiad.options.kinds import Kind

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_DEFAULT_PORTS: Final = (("http://", ":80"), ("https://", ":443"))


def _read(text: str) -> str:
    origin = text.lower()
    if origin in ("*", "null"):
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"Invalid option value. Got {text}")
    for scheme, port in _DEFAULT_PORTS:
        # Browsers leave the port out where it is the scheme's own.
        if origin.startswith(scheme):
            origin = origin.removesuffix(port)
    return origin


ORIGIN = Kind("<origin>", "an origin such as https://example.com:8443 (without a path), or * for any", _read)
