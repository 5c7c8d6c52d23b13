"""A response cache outside of the process: requests are looked up while others go on, and keep their order.

A request that is looked up counts as accepted: it can be cancelled, its model is not closed, and it waits no longer
than ``socket_timeout``. Then it gets its response, or is queued like any other request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic_ns
from typing import TYPE_CHECKING

from naiad.cache.key import RequestKeys, memory_within
from naiad.cache.local import LocalCache
from naiad.cache.packed import MAX_VALUE, pack, unpack
from naiad.cache.redis import Insertion, LookUp, RedisCache
from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.eventloop.timer import LoopTimer
from naiad.execution.model.cache import ModelCache
from naiad.request import Array, InferRequest, Outputs
from naiad.telemetry.logs.server_log import request_log
from naiad.telemetry.metrics.model_statistics import ModelStatistics

if TYPE_CHECKING:
    from naiad.execution.model.responder import ModelResponder

logger = logging.getLogger("naiad")

CachedOutputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class SharedCache:
    """A cache elsewhere as one model version uses it.

    ``identity`` stands for the version's content: all servers that serve this content under the same name and version
    share its responses, at any time.
    """

    remote: RedisCache
    identity: str


class _Entry:
    """A request that is looked up; ``request`` is None when it was given up."""

    __slots__ = ("begun_ns", "deadline_ns", "is_done", "key", "outputs", "request")

    def __init__(self, request: InferRequest, key: str, begun_ns: int, deadline_ns: int) -> None:
        self.request: InferRequest | None = request
        self.key = key
        self.begun_ns = begun_ns
        self.deadline_ns = deadline_ns
        self.outputs: CachedOutputs | None = None
        self.is_done = not key


class RemoteModelCache(ModelCache):
    """Looks requests of one loaded model up in a remote cache and stores their responses there; counts both."""

    __slots__ = (
        "_entries",
        "_line",
        "_loop",
        "_missed",
        "_remote",
        "_responder",
        "_spec",
        "_submit",
        "_timer",
        "_within_ns",
    )

    def __init__(
        self,
        shared: SharedCache,
        spec: ModelSpec,
        version: int,
        statistics: ModelStatistics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._statistics = statistics
        self._keys = RequestKeys(spec, f"{spec.name}:{version}:{shared.identity}")
        self._remote = remote = shared.remote
        self._spec = spec
        self._loop = loop
        self._within_ns = remote.settings.socket_timeout_ms * 1_000_000
        # In the order of arrival: a request leaves the line after those before it.
        self._line: deque[_Entry] = deque()
        self._entries: dict[InferRequest, _Entry] = {}
        # Requests that were not found, with their keys and how long it took to find that out.
        self._missed: dict[InferRequest, tuple[str, int]] = {}
        self._timer: LoopTimer | None = None
        self._responder: ModelResponder | None = None
        self._submit: Callable[[InferRequest], None] | None = None

    def serve(self, responder: ModelResponder, submit: Callable[[InferRequest], None]) -> None:
        """Set what look-ups lead to: ``responder`` responds to found requests, ``submit`` takes the others."""
        self._responder = responder
        self._submit = submit

    def close(self) -> None:
        """End all look-ups."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self._line.clear()
        self._entries.clear()
        self._responder = self._submit = None

    def may_take(self, request: InferRequest) -> bool:
        """Whether ``take`` would do anything for ``request``."""
        # With requests in line even while Redis is down: these must not be overtaken.
        return request not in self._missed and (self._remote.is_up or bool(self._line))

    def take(self, request: InferRequest) -> bool:
        """Look ``request`` up; it counts as waiting meanwhile. False when it goes its way at once."""
        responder = self._responder
        made = self._keys.key(request)
        if responder is None or (made is None and not self._line):
            return False
        now_ns = monotonic_ns()
        key = f"naiad:{sha256(made).hexdigest()}" if made is not None else ""
        entry = _Entry(request, key, now_ns, now_ns + self._within_ns)
        if key and not self._remote.look_up(self._job(entry)):
            if not self._line:
                return False
            # It is not looked up, but must not overtake the requests in line.
            entry.is_done, entry.key = True, ""
        # What ``ModelResponder.admit`` does; the caller has checked the room.
        responder.in_flight += 1
        responder.budget.requests += 1
        responder.budget.bytes += request.held_bytes
        self._statistics.pending += 1
        self._entries[request] = entry
        self._line.append(entry)
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self._late)
        if len(self._line) == 1:
            self._timer.arm(entry.deadline_ns)
        return True

    def _job(self, entry: _Entry) -> LookUp:
        spec, loop = self._spec, self._loop
        options = entry.request.options if entry.request is not None else None

        # Called in a Redis thread, like ``found``: large responses do not occupy the loop.
        def read(value: bytes) -> CachedOutputs | None:
            return None if options is None else unpack(value, spec, options)

        def found(outputs: CachedOutputs | None) -> None:
            try:
                loop.call_soon_threadsafe(self._looked_up, entry, outputs)
            except RuntimeError:
                # The loop is closed, and no request waits.
                return

        return LookUp(entry.key, read, found, entry.deadline_ns)

    def look_up(self, request: InferRequest) -> CachedOutputs | None:
        """None: ``take`` looks up requests in a cache outside the process."""
        return None

    def give_up(self, request: InferRequest) -> bool:
        """Drop the look-up of a request, which the caller responds to; False when none is under way."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return False
        entry.request = None
        self._statistics.pending -= 1
        return True

    def _looked_up(self, entry: _Entry, outputs: CachedOutputs | None) -> None:
        if not entry.is_done:
            entry.is_done, entry.outputs = True, outputs
            self._send_looked_up()

    def _late(self) -> None:
        now_ns = monotonic_ns()
        for entry in self._line:
            if entry.deadline_ns > now_ns:
                break
            if not entry.is_done:
                entry.is_done = True
                # It counts as a miss from now on; a result that comes later is dropped.
                self._remote.figures.failures += 1
        self._send_looked_up()

    def _send_looked_up(self) -> None:
        """Send on the requests at the head of the line whose look-up has ended."""
        line = self._line
        while line and (line[0].is_done or line[0].request is None):
            entry = line.popleft()
            if entry.request is not None:
                self._send_on(entry.request, entry)
        if line and self._timer is not None:
            self._timer.arm(line[0].deadline_ns)

    def _send_on(self, request: InferRequest, entry: _Entry) -> None:
        responder, submit = self._responder, self._submit
        if responder is None or submit is None:
            return
        del self._entries[request]
        self._statistics.pending -= 1
        now_ns = monotonic_ns()
        # ``take`` admitted it for the time of the look-up; ``submit`` admits it again.
        responder.release(request)
        figures = self._remote.figures
        if entry.outputs is not None:
            figures.hits += 1
            self._statistics.count_cache_hit(
                now_ns - request.received_ns, entry.begun_ns - request.queued_ns, now_ns - entry.begun_ns
            )
            responder.respond_cached(request, entry.outputs)
            responder.notify_drained()
            return
        if entry.key:
            figures.misses += 1
        self._missed[request] = entry.key, now_ns - entry.begun_ns
        # A reserved place: a model that stops meanwhile must still take the request.
        responder.in_flight += 1
        try:
            submit(request)
        except NaiadError as error:
            self._missed.pop(request, None)
            try:
                request.respond({}, error)
            except Exception:
                request_log(logger, logging.ERROR, request.id, "the answer could not be sent", exc_info=True)

    def keep(self, request: InferRequest, outputs: Mapping[str, Array] | None) -> None:
        """Store the outputs of a request that was looked up, unless it failed and they are None."""
        key, lookup_ns = self._missed.pop(request, ("", 0))
        if not key or outputs is None:
            return
        begun_ns = monotonic_ns()
        size = memory_within(outputs, MAX_VALUE)
        if size is not None:
            # The outputs are often views of a whole batch, or of memory that will be reused.
            copies: Mapping[str, Array] = {name: array.copy() for name, array in outputs.items()}
            if isinstance(outputs, Outputs):
                copies = Outputs(copies, outputs.parameters)
            spec, rows = self._spec, request.options.rows
            self._remote.insert(Insertion(key, lambda: pack(copies, spec, rows), size))
        # A response that has no room, or comes while Redis is down, was a miss all the same.
        self._statistics.count_cache_miss(lookup_ns + monotonic_ns() - begun_ns)


def model_cache(
    cache: LocalCache | SharedCache | None,
    spec: ModelSpec,
    version: int,
    statistics: ModelStatistics,
    loop: asyncio.AbstractEventLoop,
) -> ModelCache | None:
    """The response cache of one loaded model, None where it has none."""
    if isinstance(cache, SharedCache):
        return RemoteModelCache(cache, spec, version, statistics, loop)
    return None if cache is None else ModelCache(cache, spec, version, statistics)
