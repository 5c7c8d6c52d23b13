"""The loop of the load generator: one thread on one epoll object."""

from __future__ import annotations

import select
import time
from types import TracebackType
from typing import Final

from naiad.perf.histogram import DurationHistogram
from naiad.perf.target.protocol import ClientChannel

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_EXACT_NS: Final = 20_000_000
"""Shorter waits are as exact as the system allows; epoll itself counts in milliseconds."""
_MAX_SELECT: Final = 1024

clock = time.monotonic_ns


class EpollLoop:
    """Watches the sockets of channels and hands their events over.

    Attributes:
        failure: why the measurement cannot go on; empty while it can.
        delay: for each turn with events, how long its last event waited for the ones before it.
        serves: whether the server that is measured runs on this loop as well.
    """

    serves = False

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._channels: dict[int, ClientChannel] = {}
        self._due_to_flush: list[ClientChannel] = []
        self._is_exact = self._epoll.fileno() < _MAX_SELECT
        self.failure = ""
        self.delay = DurationHistogram()
        self._delays: list[int] = []

    def __enter__(self) -> EpollLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all channels that are watched."""
        for channel in list(self._channels.values()):
            channel.close()
        self._epoll.close()

    # What channels ask for

    def add(self, channel: ClientChannel, *, writes: bool) -> None:
        """Watch the socket of a channel."""
        self._channels[channel.fileno()] = channel
        self._epoll.register(channel.fileno(), _IN | _OUT if writes else _IN)

    def watch_writes(self, channel: ClientChannel, *, writes: bool) -> None:
        """Say whether room to send is an event as well."""
        self._epoll.modify(channel.fileno(), _IN | _OUT if writes else _IN)

    def remove(self, descriptor: int) -> None:
        """Watch a socket no longer."""
        if self._channels.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def flush_later(self, channel: ClientChannel) -> None:
        """Call ``flush`` of the channel before the loop waits again."""
        self._due_to_flush.append(channel)

    def fail(self, cause: str) -> None:
        """Stop the measurement; the first cause counts."""
        self.failure = self.failure or cause

    # Turns

    def flush(self) -> None:
        """Send what was started outside of turns."""
        due = self._due_to_flush
        while due:
            due.pop().flush()

    def turn(self, until_ns: int) -> None:
        """Wait for events, at the latest until a time on the monotonic clock, and handle them."""
        if self._due_to_flush:
            self.flush()
        left = until_ns - clock()
        if left <= 0:
            events = self._epoll.poll(0)
        elif left < _EXACT_NS and self._is_exact:
            select.select((self._epoll,), (), (), left / 1e9)
            events = self._epoll.poll(0)
        else:
            events = self._epoll.poll(left / 1e9)
        if not events:
            return
        woke = clock()
        channels = self._channels
        for descriptor, mask in events:
            channel = channels.get(descriptor)
            if channel is None:
                continue
            if mask == _IN and channel.is_open:
                channel.receive()
            else:
                channel.handle(mask)
        if len(events) > 1:
            self._delays.append(clock() - woke)

    def take_delays(self) -> list[int]:
        """The delays of the turns since the last call, in ns."""
        taken, self._delays = self._delays, []
        return taken
