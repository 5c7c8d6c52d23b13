"""Long responses about many models, which the event loop makes in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from naiad.eventloop.sliced_work import SlicedWork
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.replies import handler_failed

_Part = TypeVar("_Part")


def send_in_slices(
    work: SlicedWork, exchange: Exchange, parts: Iterable[_Part], send: Callable[[list[_Part]], object]
) -> None:
    """Make the parts of a long response, with other requests in between, and ``send`` it when all are made."""

    def steps() -> Iterator[None]:
        made: list[_Part] = []
        try:
            for part in parts:
                if exchange.closed():
                    break
                made.append(part)
                yield
            send(made)
        except Exception:
            handler_failed(exchange)

    work.run(steps())
