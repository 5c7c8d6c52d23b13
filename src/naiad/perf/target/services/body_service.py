"""What services over HTTP have in common: where they are, and requests as whole bodies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Generic, NoReturn, TypeVar

from naiad.perf.settings import TargetSettings
from naiad.perf.steps import TensorValue
from naiad.perf.target.address import reach, split_url
from naiad.perf.target.http_channel import HttpChannel
from naiad.perf.target.http_request import HttpRequestBytes, request_head
from naiad.perf.target.http_response import HttpResponseReader
from naiad.perf.target.protocol import ClientChannel, Poller, Problem, ResponseListener, TargetError
from naiad.perf.target.services.failures import judge_failure
from naiad.perf.target.services.plain_service import PlainService
from naiad.perf.target.tls import tls_context
from naiad.perf.target.validation import find_difference

Request = TypeVar("Request")


class WholeStep(Generic[Request]):
    """A step that is one request, whatever comes before and after it."""

    __slots__ = ("plain",)

    def __init__(self, plain: Request) -> None:
        self.plain = plain

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> NoReturn:
        """Services of this kind have no sequences, and none of their models is described as having any."""
        raise TargetError("the service has no sequences")


class BodyService(PlainService):
    """The base of services whose requests are bodies over HTTP.

    Raises:
        TargetError: the server is not reached.
    """

    protocol = "http"

    def __init__(self, settings: TargetSettings, default_port: int) -> None:
        super().__init__(settings)
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
        """A request of the load; ``path`` stands below that of the address. A type among -H comes first."""
        headers = self._settings.headers
        head = request_head("POST", self._base + path, self._address.authority, headers)
        is_given = any(name.lower() == "content-type" for name, _ in headers)
        lines = ("" if is_given else f"Content-Type: {content_type}\r\n").encode()
        lines += b"Content-Length: %d\r\n\r\n" % len(body)
        keeps_body = keeps_body or self._settings.keeps_responses
        return HttpRequestBytes(head + lines + body, index, expected, keeps_body=keeps_body)

    def _get(self, path: str) -> HttpRequestBytes:
        """A question beside the load."""
        head = request_head("GET", self._base + path, self._address.authority, self._settings.headers)
        return HttpRequestBytes(head + b"\r\n", keeps_body=True)

    def judge(self, request: HttpRequestBytes, reader: HttpResponseReader) -> Problem | None:
        """The fault of a whole response; None for a right one."""
        if reader.status != 200:
            return judge_failure(request, reader)
        if not request.keeps_body:
            return None
        request.body = bytes(reader.body or b"")
        return (
            find_difference(request.expected, partial(self.outputs_of, request.last_response))
            if request.expected
            else None
        )

    def outputs_of(self, response: tuple[bytes, int]) -> Mapping[str, TensorValue]:
        """The outputs of a response by name: none where the service does not name them."""
        return {}

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
