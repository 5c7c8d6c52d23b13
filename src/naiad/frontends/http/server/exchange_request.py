"""``ExchangeRequest``: an inference request that came over HTTP, whichever API it is of."""

from __future__ import annotations

from collections.abc import Mapping

from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.inference.client_request import ClientRequest
from naiad.request import BatchTimes


class ExchangeRequest(ClientRequest):
    """A request that responds on its HTTP exchange."""

    __slots__ = ("exchange",)
    exchange: Exchange
    carrier = "HTTP"

    def headers(self) -> Mapping[str, str]:
        return self.exchange.head.headers

    def joined(self, batch: BatchTimes) -> None:
        self.exchange.joined(batch)

    def is_wanted(self) -> bool:
        return not self.exchange.closed()
