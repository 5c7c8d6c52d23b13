"""Shadow traffic: copies of requests for another version, whose responses are compared and dropped.

A copy is sent after its caller has the response, in a later turn of the loop. So it cannot delay or fail the caller,
and costs only the processor time of the shadow version. The inputs are not copied: nothing changes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

import numpy as np

from naiad.errors import NaiadError
from naiad.lifecycle.state.load_threads import in_thread
from naiad.request import Array, InferRequest, Recipient
from naiad.scheduling.traffic.weighted_split import Fraction
from naiad.tensor.packed_bytes import is_packed, unpacked

if TYPE_CHECKING:
    from naiad.config.routes import Shadow
    from naiad.execution.model.interface import ServingModel
    from naiad.scheduling.admission import RequestBudget
    from naiad.telemetry.metrics.shadow import ShadowStatistics

logger = logging.getLogger("naiad")

MAX_IN_FLIGHT: Final = 32
"""Requests that are watched or in flight in the shadow at the same time; others are skipped and counted."""
_AT_ONCE_BYTES: Final = 1 << 18
"""Responses up to this size are compared on the loop, which takes less time than a thread."""


class ShadowTraffic:
    """The copies for one shadow version. Used on the event loop only."""

    def __init__(self, settings: Shadow, model: Recipient, statistics: ShadowStatistics) -> None:
        self.statistics = statistics
        self._model = model
        self._tolerance = settings.tolerance
        self._fraction = Fraction(settings.fraction)

    def wants(self) -> bool:
        """Whether the next request is to be copied: then ``watch`` has to follow."""
        if not self._fraction.take():
            return False
        if self.statistics.in_flight >= MAX_IN_FLIGHT:
            self.statistics.skipped += 1
            return False
        return True

    def watch(self, request: InferRequest, target: ServingModel, submit: Callable[[InferRequest], None]) -> None:
        """Hand a request to ``target`` with ``submit``, and copy it after its response; errors as ``submit``."""
        watched = WatchedRequest(request, target, self)
        request.retarget(watched)
        # Before ``submit``, within which a model on the loop responds.
        self.statistics.in_flight += 1
        try:
            submit(watched)
        except BaseException:
            self.statistics.in_flight -= 1
            raise

    def responded(self, request: WatchedRequest, outputs: Mapping[str, Array] | None) -> None:
        """Send the copy of a watched request, which got ``outputs``, or an error where they are None."""
        if outputs is None:
            self.statistics.in_flight -= 1
            return
        copy = _Copy(request, outputs, self)
        asyncio.get_running_loop().call_soon(self._send, copy)

    def _send(self, copy: _Copy) -> None:
        copy.received_ns = copy.queued_ns = monotonic_ns()
        try:
            self._model.submit(copy)
        except NaiadError:
            # It is being unloaded, or its process is away.
            self.statistics.in_flight -= 1
            self.statistics.skipped += 1

    def failed(self, error: NaiadError) -> None:
        """Count a copy for which the shadow had an error."""
        self.statistics.in_flight -= 1
        self.statistics.errors += 1
        logger.debug("a shadow version failed a request: %s", error)

    def compare(self, expected: Mapping[str, Array], found: Mapping[str, Array], ns: int) -> None:
        """Compare the responses to a copy, which took the shadow ``ns`` nanoseconds."""
        if sum(array.nbytes for array in expected.values()) <= _AT_ONCE_BYTES:
            self._count(difference(expected, found), ns)
            return
        in_thread(difference, expected, found).add_done_callback(partial(self._compared, ns))

    def _compared(self, ns: int, done: asyncio.Future[float]) -> None:
        self._count(float("inf") if done.cancelled() or done.exception() else done.result(), ns)

    def _count(self, found: float, ns: int) -> None:
        self.statistics.in_flight -= 1
        self.statistics.count(found, self._tolerance, ns)


class WatchedRequest(InferRequest):
    """A request whose response is observed on its way to the caller, in place of the request where that runs."""

    __slots__ = ("_is_over", "_request", "_target", "_traffic")

    def __init__(self, request: InferRequest, target: ServingModel, traffic: ShadowTraffic) -> None:
        super().__init__(request.options, request.inputs, request.id, request.received_ns, request.queued_ns)
        self.held_bytes = request.held_bytes
        self._request: InferRequest | None = request
        self._target = target
        self._traffic = traffic
        self._is_over = False

    @property
    def carrier(self) -> str:  # type: ignore[override]
        """What brought the request."""
        return "" if self._request is None else self._request.carrier

    @property
    def can_be_refused(self) -> bool:  # type: ignore[override]
        """False: no call of a model whose own request was accepted."""
        return self._request is None or self._request.can_be_refused

    @property
    def budget(self) -> RequestBudget:
        """The budget of all models, for work on its response."""
        return self._target.budget

    def headers(self) -> Mapping[str, str]:
        return {} if self._request is None else self._request.headers()

    @property
    def version(self) -> int:
        """The version that responds."""
        return self._target.version

    def submit(self, request: InferRequest) -> None:
        """Hand a request to the target; a ``Recipient`` has this method, and nothing calls it here."""
        self._target.submit(request)

    def cancel(self, request: InferRequest) -> None:
        """Cancel the watched request at its target, since the caller gave up."""
        self._target.cancel(self)

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Do nothing: requests to decoupled models are not watched."""

    def resume(self, request: InferRequest) -> None:
        """Do nothing: see ``pause``."""

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if self._request is not None:
            # When this raises, an error follows.
            self._request.respond(outputs, error)
        if not self._is_over:
            self._is_over = True
            self._traffic.responded(self, None if error is not None else outputs)


class _Copy(InferRequest):
    """A copy for the shadow, with the response that its caller got."""

    __slots__ = ("_expected", "_traffic")

    def __init__(self, request: WatchedRequest, expected: Mapping[str, Array], traffic: ShadowTraffic) -> None:
        super().__init__(request.options, request.inputs, request.id)
        self._expected = expected
        self._traffic = traffic

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None:
            self._traffic.failed(error)
        else:
            self._traffic.compare(self._expected, outputs, monotonic_ns() - self.received_ns)


def difference(expected: Mapping[str, Array], found: Mapping[str, Array]) -> float:
    """The largest absolute difference of two numbers in the same place of two responses.

    Infinite where they have different names, shapes or datatypes, other texts, or a number where the other has none
    (NaN, or another infinity). Two NaN are equal.
    """
    if expected.keys() != found.keys():
        return float("inf")
    return max((_difference(expected[name], found[name]) for name in expected), default=0.0)


def _difference(one: Array, other: Array) -> float:
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if not one.size:
        return 0.0
    if is_packed(one) and is_packed(other):
        return 0.0 if one.equals(other) else float("inf")
    # The kind of bfloat16 is V.
    if one.dtype.hasobject or one.dtype.kind not in "biufV":
        return 0.0 if bool(np.all(unpacked(one) == unpacked(other))) else float("inf")
    same = (one == other) | ((one != one) & (other != other))
    if bool(np.all(same)):
        return 0.0
    with np.errstate(all="ignore"):
        apart = float(np.max(np.where(same, 0.0, np.abs(one.astype(np.float64) - other.astype(np.float64)))))
    if one.dtype.kind in "iu":
        # Large ones may look alike as floats.
        apart = max(apart, 1.0)
    return apart if apart == apart else float("inf")
