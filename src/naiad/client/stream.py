"""One connection of a client whose calls are coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from math import inf
from typing import Final, cast

from naiad.client.address import ServerAddress
from naiad.client.deadline import Deadline
from naiad.client.protocol import ClientExchange, Parts, ServerResponse
from naiad.errors import NaiadError

_BUFFER_BYTES: Final = 1 << 16
_MAX_UNTAKEN: Final = 64
_NEVER: Final = Deadline(inf, inf)


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection that carries one request at a time.

    Attributes:
        is_used: whether it has carried a request before.
        is_open: whether it can carry another one.
    """

    def __init__(self, address: ServerAddress, exchange: ClientExchange) -> None:
        self._address = address
        self._exchange = exchange
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[ServerResponse] | None = None
        # Of a stream: its messages that nobody took yet, and what wakes who waits for them.
        self._messages: deque[bytes] = deque()
        self._arrived: asyncio.Event | None = None
        # One timer for all requests of the connection: it is due no later than the deadline of the present one.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf
        self._deadline = _NEVER
        # asyncio would allocate 256 KiB for each read, which costs more than the rest of it.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.is_used = False
        self.is_open = False

    # Events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what arrives."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take a part of a response."""
        try:
            response = self._exchange.feed(bytes(self._buffer[:nbytes]))
            if self._arrived is not None:
                self._take_messages(self._arrived)
        except NaiadError as error:
            self._fail(error)
            return
        self._send(self._exchange.outgoing())
        if response is not None:
            self._finish(response)

    def connection_lost(self, error: Exception | None) -> None:
        """End the request."""
        self.is_open = False
        response = None if self._done is None else self._exchange.end()
        if response is not None:
            self._finish(response)
        else:
            cause = error if isinstance(error, OSError) else None
            self._fail(self._address.unreachable(cause, was_sent=True, is_new=not self.is_used))

    def _take_messages(self, arrived: asyncio.Event) -> None:
        self._messages.extend(self._exchange.take_messages())
        if len(self._messages) > _MAX_UNTAKEN and self._transport is not None:
            self._transport.pause_reading()
        if self._messages:
            arrived.set()

    def _finish(self, response: ServerResponse) -> None:
        self.is_used = True
        if response.closes:
            self.close()
        if self._done is not None and not self._done.done():
            self._done.set_result(response)
            if self._arrived is not None:
                self._arrived.set()

    def _fail(self, error: NaiadError) -> None:
        self.close()
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
            if self._arrived is not None:
                self._arrived.set()

    # Calls

    async def exchange(self, request: Parts, deadline: Deadline) -> ServerResponse:
        """Send a request and wait for its response.

        Args:
            deadline: until when the response has to be there.

        Raises:
            ConnectionFailedError: the connection ended before it.
            DeadlineExceededError: not in time.
        """
        if self._transport is None or not self.is_open:
            raise self._address.unreachable(None, was_sent=False)
        loop = asyncio.get_running_loop()
        self._deadline = deadline
        if deadline.at_s < self._timer_s:
            self._watch(loop)
        self._done = loop.create_future()
        try:
            self._exchange.begin(request)
            self._send(self._exchange.outgoing())
            return await self._done
        except BaseException:
            # The response of a cancelled request would be taken for that of the next one.
            self.close()
            raise
        finally:
            self._done = None

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer to the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = self._deadline.at_s
        self._timer = loop.call_later(max(0.0, self._deadline.left_s), self._is_due, loop)

    def _is_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the present request if it is too late. Most often it has begun after the timer, and ends later."""
        self._timer, self._timer_s = None, inf
        if self._done is None or self._deadline is _NEVER:
            return
        if self._deadline.left_s > 0:
            self._watch(loop)
        else:
            self._fail(self._address.too_late(self._deadline.timeout_s))

    async def stream(self, request: Parts) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the messages of its response.

        Raises:
            ResponseError: the call ended with an error.
            ConnectionFailedError: the connection ended before it.
        """
        if self._transport is None or not self.is_open:
            raise self._address.unreachable(None, was_sent=False)
        done = self._done = asyncio.get_running_loop().create_future()
        arrived = self._arrived = asyncio.Event()
        self._deadline = _NEVER
        try:
            self._exchange.begin(request)
            self._send(self._exchange.outgoing())
            while True:
                while self._messages:
                    yield self._messages.popleft()
                if done.done():
                    break
                self._transport.resume_reading()
                arrived.clear()
                await arrived.wait()
        finally:
            self._done = self._arrived = None
            self._messages.clear()
            if not done.done():
                # A caller who reads no further leaves the rest of the responses behind.
                self.close()
            elif self.is_open:
                # The last messages may have come together, more than were to be held.
                self._transport.resume_reading()
        done.result().checked()

    def _send(self, parts: Parts) -> None:
        if parts and self._transport is not None:
            if len(parts) == 1:
                self._transport.write(parts[0])
            else:
                self._transport.writelines(parts)

    def close(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_s = None, inf
        if self._transport is not None:
            self._transport.abort()
