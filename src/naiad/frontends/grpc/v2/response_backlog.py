"""The responses of decoupled models that wait for a slow caller.

Once many wait, the requests that bring more are held: their models are asked to pause. Further responses, from models
that cannot pause or that were on their way, are kept up to a bound; a request that exceeds it is cancelled.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from naiad.options import INT32_MAX
from naiad.scheduling.flow_control import BACKPRESSURE_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.execution.model.interface import ServingModel
    from naiad.frontends.grpc.rpc.call import Buffer, RpcCall
    from naiad.request import InferRequest

MAX_WAITING_BYTES: Final = 1 << 28
"""One response more is accepted, so that a single one may have any size."""
PAUSE_BYTES: Final = 1 << 20
"""With more bytes waiting, the requests that bring them are held."""
PAUSE_COUNT: Final = 256
"""The same for the number of responses, unless the option sets one."""
RESPONSE_BYTES: Final = 640
"""The memory that a response costs in addition to its own bytes."""


class Backlog:
    """The responses that wait on one call.

    Args:
        call: the call that they are sent on.
        limit: the number of waiting responses, of any size, from which on requests are held; ``INT32_MAX`` for
            ``PAUSE_COUNT``.
    """

    __slots__ = ("_bytes", "_call", "_count", "_held", "_limit", "_since_s")

    def __init__(self, call: RpcCall, limit: int = INT32_MAX) -> None:
        self._call = call
        self._limit = PAUSE_COUNT if limit == INT32_MAX else limit
        self._count = self._bytes = 0
        self._held: dict[InferRequest, ServingModel] = {}
        self._since_s = 0.0

    @property
    def is_full(self) -> bool:
        """Whether no further response may be sent for now."""
        return self._bytes > MAX_WAITING_BYTES and self._call.congested

    @property
    def holds(self) -> bool:
        """Whether models should pause."""
        return self._count >= self._limit or self._bytes > PAUSE_BYTES or self._call.congested

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Send a response and count it until the caller has taken all."""
        self._call.send(parts, size)
        # Counted even if it left at once: only ``drained`` tells when nothing waits, and resets the counts.
        self._count += 1
        self._bytes += size + RESPONSE_BYTES

    def pause(self, request: InferRequest, model: ServingModel) -> None:
        """Ask the model of a request to pause."""
        if request in self._held:
            return
        now_s = monotonic()
        if not self._held:
            self._since_s = now_s
        self._held[request] = model
        # All held requests share one time, which began with the first of them.
        model.pause(request, max(0, BACKPRESSURE_TIMEOUT_MS - int((now_s - self._since_s) * 1000)))

    def forget(self, request: InferRequest) -> None:
        """Drop a request that has ended."""
        self._held.pop(request, None)

    def forget_all(self) -> None:
        """The caller is gone."""
        self._held.clear()

    def drained(self) -> None:
        """The caller took all waiting responses."""
        self._count = self._bytes = 0
        if self._held:
            # Taken out first: a model may respond at once and be held again.
            held, self._held = self._held, {}
            for request, model in held.items():
                model.resume(request)
