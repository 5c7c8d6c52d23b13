"""Requests with cached responses, compared with the reference server's local cache."""

from __future__ import annotations

from collections.abc import Iterator

from .. import python_models
from ..figures import Figure
from ..python_contest import Contest, contenders, measure
from ..settings import Settings

MODEL = "cached_identity"
CACHE = ("--cache-config", "local,size=16777216")
CACHED = "response_cache { enable: true }"


def measure_hits(settings: Settings) -> Iterator[Figure]:
    """One request of 16 floats over and over: all but the first are hits."""
    repository = settings.work / "cache_hit"
    python_models.add_python_identity(repository, MODEL, CACHED)
    with contenders(settings, repository, CACHE, CACHE) as servers:
        wanted = {1: 2.0, 8: 2.0, 32: 2.0}
        yield from measure(settings, servers, Contest("cache_hit", MODEL, 16, lambda x: x, wanted, is_pinned=True))
