"""Requests that wait until their model is loaded for them (``--load-on-demand-secs``), over any protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from naiad.errors import CancelledError, NaiadError
from naiad.lifecycle.memory.load_on_demand import ModelNotLoadedError

if TYPE_CHECKING:
    from naiad.lifecycle.memory.load_on_demand import LoadOnDemand, Waiting


class WaitOwner(Protocol):
    """The owner of an exchange or a call: it is notified when the caller leaves."""

    def cancel(self) -> None:
        """The caller is gone."""


class WaitingCarrier(Protocol):
    """An exchange or a call whose request can wait.

    Attributes:
        owner: cancelled when the caller leaves.
    """

    owner: WaitOwner | None


class LoadWait:
    """Owns the carrier of a request while that waits for its model; arguments as ``wait_for_model``."""

    __slots__ = ("_carrier", "_fail", "_retry", "_waiting")

    def __init__(
        self, carrier: WaitingCarrier, retry: Callable[[], object], fail: Callable[[NaiadError], object]
    ) -> None:
        self._carrier = carrier
        self._retry = retry
        self._fail = fail
        self._waiting: Waiting | None = None

    def begin(self, demand: LoadOnDemand, name: str, size: int) -> None:
        """Have the model loaded.

        Raises:
            UnavailableError: too many wait, or a load has just failed.
        """
        self._waiting = demand.wait(name, size, self._end)
        self._carrier.owner = self

    def cancel(self) -> None:
        """The caller is gone, or has ended only its own direction: then it can still read this response."""
        if self._waiting is not None:
            self._waiting.leave()
            self._waiting = None
            self._fail(CancelledError("the request was cancelled by its caller"))

    def _end(self, error: NaiadError | None) -> None:
        self._waiting = None
        # Before the retry, which makes the request the owner.
        self._carrier.owner = None
        if error is not None:
            self._fail(error)
        else:
            self._retry()


def wait_for_model(
    demand: LoadOnDemand | None,
    error: NaiadError,
    size: int,
    carrier: WaitingCarrier,
    retry: Callable[[], object],
    fail: Callable[[NaiadError], object],
) -> bool:
    """Have a model loaded where ``error`` says that it is not; False where that is not possible.

    Args:
        demand: loads models for requests; None without the option.
        error: the failure of the request.
        size: bytes that the request holds while it waits.
        carrier: its exchange or call.
        retry: handles the request again, once its model is loaded.
        fail: responds with an error instead.
    """
    if demand is None or not isinstance(error, ModelNotLoadedError):
        return False
    try:
        LoadWait(carrier, retry, fail).begin(demand, error.name, size)
    except NaiadError as refused:
        fail(refused)
    return True
