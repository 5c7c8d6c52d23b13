"""A connection whose responses are streams of events."""

from __future__ import annotations

from typing import Any

from naiad.perf.target.address import Address
from naiad.perf.target.http_channel import HttpChannel, Judge
from naiad.perf.target.http_response import HttpResponseReader
from naiad.perf.target.protocol import Poller, Problem, ResponseListener
from naiad.perf.target.services.generated_text import EventStream


class EventChannel(HttpChannel):
    """Tells of each event with output when it arrives.

    Args:
        judge: says what is wrong with a response that is no success.
    """

    def __init__(
        self, address: Address, poller: Poller, listener: ResponseListener, kind: type[EventStream], judge: Judge
    ) -> None:
        super().__init__(address, poller, listener, self._judge_stream)
        self._kind = kind
        self._events = kind()
        self._judge_failure = judge

    def start(self, request: Any, began_ns: int, now_ns: int) -> None:
        """Send a request."""
        self._events = self._kind()
        self.last_ns = 0
        super().start(request, began_ns, now_ns)

    def arrived(self, reader: HttpResponseReader, now_ns: int) -> None:
        """Tell of the events with output that are new."""
        if reader.status != 200:
            return
        self._events.feed(reader.arrived)
        for data in self._events.fresh:
            self.request.body = data
            self._listener.responded(self, now_ns)
            self.last_ns = now_ns

    def _judge_stream(self, request: Any, reader: HttpResponseReader) -> Problem | None:
        if reader.status != 200:
            return self._judge_failure(request, reader)
        request.body = bytes(reader.arrived)
        problem = self._events.end()
        if problem is None:
            self._times.output_tokens += self._events.output_tokens
        return problem
