"""HTTP requests that wait until their model is loaded for them (``--load-on-demand-secs``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.errors import CancelledError, NaiadError
from naiad.frontends.http.server.replies import JSON, send_error
from naiad.lifecycle.memory.load_on_demand import ModelNotLoadedError, Waiting

if TYPE_CHECKING:
    from naiad.engine.engine import Engine
    from naiad.frontends.http.server.exchange import Body, Exchange, Handler


def refuse_or_wait(
    engine: Engine, exchange: Exchange, body: Body, error: NaiadError, handle: Handler, content_type: str = JSON
) -> None:
    """Answer with ``error``; or, where the model can be loaded, give the request to ``handle`` again once it is."""
    if isinstance(error, ModelNotLoadedError) and engine.demand is not None:
        try:
            _wait(engine, exchange, body, error, handle)
        except NaiadError as refused:
            send_error(exchange, refused)
        return
    send_error(exchange, error, content_type)


class _WaitingExchange:
    """Owns the exchange while its request waits."""

    __slots__ = ("exchange", "waiting")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.waiting: Waiting | None = None

    def cancel(self) -> None:
        """The caller is gone, or ended its side: then it reads this answer."""
        if self.waiting is not None:
            self.waiting.leave()
            self.waiting = None
            send_error(self.exchange, CancelledError("the request was cancelled by its caller"))


def _wait(engine: Engine, exchange: Exchange, body: Body, missing: ModelNotLoadedError, handle: Handler) -> None:
    waiter = _WaitingExchange(exchange)

    def go_on(error: NaiadError | None) -> None:
        waiter.waiting = None
        exchange.owner = None
        if error is not None:
            send_error(exchange, error)
        else:
            handle(exchange, body)  # type: ignore[arg-type]

    if engine.demand is not None:
        waiter.waiting = engine.demand.wait(missing.name, len(body), go_on)
        exchange.owner = waiter
