"""The routes of the v2 API that a prediction of Vertex AI can ask for, with the header ``X-Vertex-Ai-Triton-Redirect``.

The platform passes POST requests to one path only. What changes the server is not among them. Source: the reference.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.frontends.http.v2.model_path import MODEL

HEADER: Final = "x-vertex-ai-triton-redirect"
METRICS: Final = "/metrics"
_REGION: Final = "/v2/(?:system|cuda)sharedmemory(?:/region/[^/]++)?"
_READ: Final = re.compile(
    rf"{METRICS}|/v2|/v2/health/(?:live|ready)|/v2/models/stats|{MODEL}(?:/(?:ready|config|stats))?|{_REGION}/status"
)
_POSTED: Final = re.compile(rf"{MODEL}/infer|/v2/repository(?:/[^/]++)?/index")
_FORBIDDEN: Final = re.compile(rf"{_REGION}/(?:un)?register|/v2/repository(?:/[^/]++)?/models/[^/]++/(?:load|unload)")


def method_of(target: str) -> str:
    """The method with which a redirect to ``target`` is made; "" for a path that no redirect may have."""
    if _READ.fullmatch(target) is not None:
        return "GET"
    return "POST" if _POSTED.fullmatch(target) is not None else ""


def is_forbidden(target: str) -> bool:
    """Whether a path changes what the server does, so that it is refused with a status of its own."""
    return _FORBIDDEN.fullmatch(target) is not None


def is_inference(target: str) -> bool:
    """Whether a path takes an inference request, whose content type may tell the length of its JSON part."""
    return target.endswith("/infer") and _POSTED.fullmatch(target) is not None
