"""What services over HTTP have in common: where they are, and requests as whole bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from naiad.perf.results import ServerParts
from naiad.perf.settings import TargetSettings
from naiad.perf.steps import TensorValue
from naiad.perf.target.address import reach, split_url
from naiad.perf.target.http_channel import HttpChannel, Judge
from naiad.perf.target.http_request import HttpRequestBytes, request_head
from naiad.perf.target.protocol import ClientChannel, Poller, ResponseListener, TargetError
from naiad.perf.target.region_calls import RegionCalls
from naiad.perf.target.tls import tls_context
from naiad.shared_memory.region import RegionRef


class BodyStep:
    """A step that is one request with one body."""

    __slots__ = ("plain",)

    def __init__(self, plain: HttpRequestBytes) -> None:
        self.plain = plain

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> NoReturn:
        """Services of this kind have no sequences, and none of their models is described as having any."""
        raise TargetError("the service has no sequences")


class BodyService:
    """The base of services whose requests are bodies over HTTP, and who keep no counts.

    Raises:
        TargetError: the server is not reached.
    """

    protocol = "http"
    is_streaming = False
    judge: Judge

    def __init__(self, settings: TargetSettings, default_port: int) -> None:
        self._settings = settings
        secure, host, port, self._base = split_url(settings.url, default_port)
        self._address = reach(host, port, tls_context(settings, is_wanted=secure))

    @property
    def endpoint(self) -> str:
        """Where the server is."""
        return self._address.authority

    def _post(
        self,
        path: str,
        body: bytes,
        content_type: str = "application/json",
        index: int = 0,
        expected: tuple[TensorValue, ...] = (),
        *,
        keeps_body: bool = False,
    ) -> HttpRequestBytes:
        """A request of the load; ``path`` stands below that of the address."""
        head = request_head("POST", self._base + path, self._address.authority, self._settings.headers)
        lines = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return HttpRequestBytes(head + lines + body, index, expected, keeps_body=keeps_body)

    def _get(self, path: str) -> HttpRequestBytes:
        """A question beside the load."""
        head = request_head("GET", self._base + path, self._address.authority, self._settings.headers)
        return HttpRequestBytes(head + b"\r\n", keeps_body=True)

    def change_trace(self, settings: Mapping[str, str]) -> None:
        """Refuse traces.

        Raises:
            TargetError: always.
        """
        raise TargetError(
            f"--service-kind={self._settings.service_kind} has no traces; leave the options --trace-* out"
        )

    def place_tensors(self, outputs: Mapping[str, RegionRef]) -> RegionCalls:
        """Refuse shared memory.

        Raises:
            TargetError: always.
        """
        raise TargetError(f"--service-kind={self._settings.service_kind} has no shared memory; leave it out")

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel with one place."""
        channel = HttpChannel(self._address, poller, listener, self.judge)
        channel.connect()
        return channel

    def open_side(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """A channel for questions beside the load."""
        channel = HttpChannel(self._address, poller, listener, self.judge)
        channel.connect()
        return channel

    def statistics_request(self) -> None:
        """The service has no counts."""

    def read_statistics(self, body: bytes) -> ServerParts | None:
        """The service has no counts."""
        return None
