"""Loading models on demand: a request for a model that is not loaded waits while it is. On the event loop only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from naiad.errors import NaiadError, UnavailableError
from naiad.lifecycle.state.model_requests import Done
from naiad.lifecycle.state.wait_graph import OperationsOn, RequestsInFlight, Residence, WaitGraph

logger = logging.getLogger("naiad")

MAX_WAITING: Final = 1024
"""How many requests may wait for models."""
MAX_WAITING_BYTES: Final = 1 << 28
"""How many bytes they may hold together; a single request may hold more."""
RETRY_S: Final = 10.0
"""How long requests are refused after a load that failed: it is not tried again for each of them."""
RETRY_SOON_S: Final = 1.0
"""The same after a load that was refused for now, such as for lack of memory."""


class ModelNotLoadedError(UnavailableError):
    """The model is not loaded, and an inference request would load it. ``name`` is the model's."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Request for unknown model: '{name}' is not loaded; an inference request loads it")
        self.name = name


class Loader(Protocol):
    """Starts loads; the manager."""

    def is_loadable(self, name: str) -> bool:
        """Whether the model is in a repository, and no version of it serves."""

    def begin_demanded(self, name: str, done: Done) -> None:
        """Start to load a model, unless it serves by then; ``done`` is called later."""


class Waiting:
    """A request that waits for a model. ``leave`` is called when its caller is gone.

    Attributes:
        caller: the model that made the request, as a call within a request of its own; "" for clients.
    """

    __slots__ = ("_demand", "_done", "_name", "_size", "_timer", "caller")

    def __init__(
        self, demand: LoadOnDemand, name: str, size: int, done: Done, timer: asyncio.TimerHandle, caller: str
    ) -> None:
        self.caller = caller
        self._demand = demand
        self._name = name
        self._size = size
        self._done = done
        self._timer = timer

    @property
    def size(self) -> int:
        """The bytes that the request holds."""
        return self._size

    def leave(self) -> None:
        """Stop waiting, without a callback."""
        self._timer.cancel()
        self._demand.remove(self._name, self)

    def finish(self, error: NaiadError | None) -> None:
        """Resume the request, which was removed before: with None when the model serves, or with an error."""
        self._timer.cancel()
        try:
            self._done(error)
        except Exception:
            # A request that fails must not keep the others from their responses.
            logger.exception("a request that waited for model '%s' failed", self._name)


class LoadOnDemand:
    """Loads models for requests.

    Args:
        loader: starts the loads.
        wait_s: how long a request waits at most.
        graph: gets an edge for the models that must stay while a request waits.
    """

    def __init__(self, loader: Loader, wait_s: float, graph: WaitGraph | None = None) -> None:
        self.loads = 0
        self._loader = loader
        self._wait_s = wait_s
        # Ordered sets: requests expire in the order in which they came, and may leave from anywhere.
        self._waiting: dict[str, dict[Waiting, None]] = {}
        self._loading: set[str] = set()
        self._bytes = 0
        self._graph = graph or WaitGraph()
        self._withheld: set[str] = set()
        self._failed: dict[str, tuple[float, NaiadError]] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiting.values()))

    def holds(self, name: str) -> bool:
        """Whether a model must stay, for requests that wait for it or for a call that it made."""
        return any(self._graph.awaited_by(Residence(name)))

    def withhold(self, name: str) -> None:
        """Have no request load a model that was unloaded on request, until it is loaded on request."""
        self._withheld.add(name)

    def allow(self, name: str) -> None:
        """Have requests load a model again, which is now loaded on request."""
        self._withheld.discard(name)
        self._failed.pop(name, None)

    def can_load(self, name: str) -> bool:
        """Whether ``wait`` would have the model loaded."""
        return name not in self._withheld and self._loader.is_loadable(name)

    def wait(self, name: str, size: int, done: Callable[[NaiadError | None], None], caller: str = "") -> Waiting:
        """Load a model; ``done`` is called once, later: with None when it serves, or with an error.

        ``size`` is how many bytes the request holds, ``caller`` the model that made it, if one did.

        Raises:
            UnavailableError: too many requests wait, or a load has just failed.
        """
        loop = asyncio.get_running_loop()
        until, error = self._failed.get(name, (0.0, None))
        if error is not None and loop.time() < until:
            raise _not_loaded(name, error)
        if self.waiting >= MAX_WAITING or (self._bytes and self._bytes + size > MAX_WAITING_BYTES):
            raise UnavailableError(
                f"model '{name}' is not loaded, and {self.waiting} requests with {self._bytes} bytes wait for models "
                "already: try again later"
            )
        timer = loop.call_later(self._wait_s, self._expire, name)
        waiting = Waiting(self, name, size, done, timer, caller)
        self._waiting.setdefault(name, {})[waiting] = None
        self._bytes += size
        for waiter in _waiters(name, caller):
            self._graph.add(waiter, OperationsOn(name))
        self._load(name)
        return waiting

    def remove(self, name: str, waiting: Waiting) -> None:
        """Remove a request that waits; a second call has no effect."""
        found = self._waiting.get(name)
        if found is None or waiting not in found:
            return
        del found[waiting]
        self._bytes -= waiting.size
        for waiter in _waiters(name, waiting.caller):
            self._graph.remove(waiter, OperationsOn(name))
        if not found:
            del self._waiting[name]

    def _load(self, name: str) -> None:
        if name in self._loading:
            return
        self._loading.add(name)
        self.loads += 1
        self._loader.begin_demanded(name, partial(self._loaded, name))

    def _loaded(self, name: str, error: NaiadError | None) -> None:
        self._loading.discard(name)
        if error is None or not self._loader.is_loadable(name):
            # One of its versions may have failed; others serve.
            error = None
            self._failed.pop(name, None)
        else:
            pause_s = RETRY_SOON_S if isinstance(error, UnavailableError) else RETRY_S
            self._failed[name] = (asyncio.get_running_loop().time() + pause_s, error)
        # All in one turn of the loop: the model has their requests before it can be found idle.
        for waiting in list(self._waiting.get(name, ())):
            self.remove(name, waiting)
            waiting.finish(None if error is None else _not_loaded(name, error))

    def _expire(self, name: str) -> None:
        """Refuse the request that has waited longest: timers end in the order of the requests."""
        found = self._waiting.get(name)
        if found:
            first = next(iter(found))
            self.remove(name, first)
            first.finish(UnavailableError(f"model '{name}' was not loaded within {self._wait_s:g} s: try again later"))


def _waiters(name: str, caller: str) -> tuple[Residence | RequestsInFlight, ...]:
    """The nodes that wait for the model ``name`` while a request for it waits.

    The model must not go before it has the request. A caller must stay for its call. If it drains already, its own
    request ends after the call.
    """
    return (Residence(name), Residence(caller), RequestsInFlight(caller)) if caller else (Residence(name),)


def _not_loaded(name: str, error: NaiadError) -> UnavailableError:
    return UnavailableError(f"model '{name}' could not be loaded: {error}")
