"""The response cache of one loaded model: its requests are looked up before they are queued, answers are kept."""

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
    """Looks requests up and keeps their answers; counts both.

    Each loaded model has keys of its own: a version that is loaded again may answer in another way.
    """

    __slots__ = ("_keys", "_statistics", "_store", "_waiting")

    def __init__(self, store: LocalCache, spec: ModelSpec, version: int, statistics: ModelStatistics) -> None:
        self._store = store
        self._statistics = statistics
        self._keys = RequestKeys(spec, f"{spec.name}:{version}:{next(_LOADED)}")
        # Requests that were not found, with how long it took to find that out.
        self._waiting: dict[InferRequest, tuple[bytes, int]] = {}

    def look_up(self, request: InferRequest) -> Mapping[str, Array] | None:
        """The kept answer to ``request``. For None the request goes its way, and its answer to ``keep``."""
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
        """Let a request go whose look-up is under way; False when there is none."""
        return False

    def close(self) -> None:
        """Nobody is looked up any more."""

    def keep(self, request: InferRequest, outputs: Mapping[str, Array] | None) -> None:
        """Take the answer to ``request``, None when it was an error; nothing happens for one that was not looked up."""
        key, lookup_ns = self._waiting.pop(request, (None, 0))
        if key is None or outputs is None:
            return
        begun_ns = monotonic_ns()
        if self._store.insert(key, outputs):
            self._statistics.cache_miss.add(1, lookup_ns + monotonic_ns() - begun_ns)
