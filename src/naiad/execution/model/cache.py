"""The response cache of one loaded model: looks requests up before they are queued, and stores their responses."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from time import monotonic_ns
from typing import Final

from naiad.cache.key import RequestKeys
from naiad.cache.local import LocalCache
from naiad.config.spec import ModelSpec
from naiad.request import Array, InferRequest
from naiad.telemetry.metrics.model_statistics import ModelStatistics

_LOADED: Final = count(1)


class ModelCache:
    """Looks requests up and stores their responses; counts both.

    Each loaded model has keys of its own: a version that is loaded again may respond otherwise.
    """

    __slots__ = ("_keys", "_statistics", "_store", "_waiting")

    def __init__(self, store: LocalCache, spec: ModelSpec, version: int, statistics: ModelStatistics) -> None:
        self._store = store
        self._statistics = statistics
        self._keys = RequestKeys(spec, f"{spec.name}:{version}:{next(_LOADED)}")
        # Requests that were not found, with how long it took to find that out.
        self._waiting: dict[InferRequest, tuple[bytes, int]] = {}

    def look_up(self, request: InferRequest) -> Mapping[str, Array] | None:
        """The cached outputs of ``request``; None when there are none, and its response is to go to ``keep``."""
        begun_ns = monotonic_ns()
        key = self._keys.key(request)
        if key is None:
            return None
        found = self._store.look_up(key)
        now_ns = monotonic_ns()
        if found is None:
            self._waiting[request] = key, now_ns - begun_ns
        else:
            self._statistics.count_cache_hit(
                now_ns - request.received_ns, begun_ns - request.queued_ns, now_ns - begun_ns
            )
        return found

    def give_up(self, request: InferRequest) -> bool:
        """Drop the look-up of a request; False when none is under way."""
        return False

    def close(self) -> None:
        """End all look-ups."""

    def keep(self, request: InferRequest, outputs: Mapping[str, Array] | None) -> None:
        """Store the outputs of a request that was looked up, unless it failed and they are None."""
        key, lookup_ns = self._waiting.pop(request, (None, 0))
        if key is None or outputs is None:
            return
        begun_ns = monotonic_ns()
        # A response that has no room was a miss all the same; one that an equal request cached meanwhile was none.
        if self._store.insert(key, outputs) or key not in self._store:
            self._statistics.count_cache_miss(lookup_ns + monotonic_ns() - begun_ns)
