"""One question to the server at a time, waited for: what is asked before and beside the load."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import Any

from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import ClientChannel, Place, Poller, Problem, ResponseListener, TargetError
from naiad.perf.transfer import TransferTimes

OPEN_S = 30.0
"""The longest wait until a channel is open, in seconds."""


class Questioner:
    """Listens to a channel with a single request."""

    def __init__(self, loop: EpollLoop) -> None:
        self._loop = loop
        self.times = TransferTimes()
        self.ended_ns = 0
        self.problem: Problem | None = None

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end."""
        self.ended_ns = now_ns
        self.problem = problem

    def responded(self, place: Place, now_ns: int) -> None:
        """Responses before the last one do not count here."""

    def unreached(self, channel: ClientChannel, cause: str) -> None:
        """There is no other connection to ask over."""
        self._loop.fail(cause)


def wait_open(
    loop: EpollLoop, channels: Sequence[ClientChannel], what: str, refused: Container[ClientChannel] = ()
) -> None:
    """Wait until all channels are open, but for those that are ``refused`` meanwhile.

    Raises:
        TargetError: one of them cannot be opened, or not in time.
    """
    end = time.monotonic_ns() + int(OPEN_S * 1e9)
    while not all(channel.is_open or channel in refused for channel in channels) and not loop.failure:
        if time.monotonic_ns() > end:
            opened = sum(channel.is_open for channel in channels)
            raise TargetError(f"{what} opened {opened} of {len(channels)} connections within {OPEN_S:g} s")
        loop.turn(time.monotonic_ns() + 100_000_000)
    if loop.failure:
        raise TargetError(loop.failure)


def query(
    open_channel: Callable[[Poller, ResponseListener], ClientChannel],
    request: Any,
    what: str,
    limit_s: float | None,
    on_wait: Callable[[float], None] = lambda seconds: None,
    open_loop: Callable[[], EpollLoop] = EpollLoop,
) -> int:
    """Send one request and wait for the end of its response, whose body is left in ``request.body``.

    Args:
        what: begins the text of errors.
        limit_s: the longest wait in seconds; None for as long as it takes.
        on_wait: called about twice a second with the seconds so far.
        open_loop: makes the loop that the channel needs.

    Returns:
        How long the response took in ns.

    Raises:
        TargetError: there was no response, or it is a failure.
    """
    with open_loop() as loop:
        questioner = Questioner(loop)
        channel = open_channel(loop, questioner)
        wait_open(loop, [channel], what)
        began = time.monotonic_ns()
        channel.places[0].start(request, began, began)
        while not questioner.ended_ns and not loop.failure:
            loop.turn(time.monotonic_ns() + 500_000_000)
            passed_s = (time.monotonic_ns() - began) / 1e9
            if not questioner.ended_ns:
                on_wait(passed_s)
            if limit_s is not None and passed_s > limit_s and not questioner.ended_ns:
                raise TargetError(f"{what} does not respond within {limit_s:g} s")
    if questioner.problem is not None:
        kind, cause = questioner.problem
        raise TargetError(f"{what} failed: {kind}: {cause}")
    if loop.failure:
        raise TargetError(loop.failure)
    return questioner.ended_ns - began
