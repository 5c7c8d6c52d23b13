"""The metrics page of a server."""

from __future__ import annotations

from typing import Final

from naiad.perf.target.address import Address, reach, split_url
from naiad.perf.target.http_channel import HttpChannel
from naiad.perf.target.http_request import HttpRequestBytes, request_head
from naiad.perf.target.kserve_http import judge_response
from naiad.perf.target.protocol import ClientChannel, Poller, ResponseListener
from naiad.perf.target.question import query

_PORT: Final = 8002
_LOOK_S: Final = 2.0


class MetricsTarget:
    """A page that is read over HTTP.

    Attributes:
        url: as it was asked for.
    """

    def __init__(self, url: str) -> None:
        """Reach the page's server.

        Raises:
            TargetError: it is not reached.
        """
        self.url = url
        _, host, port, self._path = split_url(url, _PORT)
        self._address: Address = reach(host, port, within_s=_LOOK_S)

    def open(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """A channel with one place."""
        channel = HttpChannel(self._address, poller, listener, judge_response)
        channel.connect()
        return channel

    def request(self) -> HttpRequestBytes:
        """The request for the page."""
        return HttpRequestBytes(
            request_head("GET", self._path or "/metrics", self._address.authority) + b"\r\n", keeps_body=True
        )

    def read(self) -> bytes:
        """The page.

        Raises:
            TargetError: there is none.
        """
        request = self.request()
        query(self.open, request, f"the request for the metrics at {self.url}", _LOOK_S)
        return request.body


def find_metrics(url: str, model: str) -> tuple[MetricsTarget | None, str]:
    """The metrics page of the server of a model; for a page that does not know the model None, and the reason.

    Raises:
        TargetError: there is no page.
    """
    target = MetricsTarget(url)
    page = target.read()
    if f'model="{model}"'.encode() not in page:
        return None, f"the metrics at {url} do not name the model '{model}': they belong to another server"
    return target, ""
