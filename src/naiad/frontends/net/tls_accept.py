"""Accepting connections that begin with a TLS handshake."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from ssl import SSLContext

log = logging.getLogger(__name__)

MAX_HANDSHAKES: Final = 512
"""The handshakes that may be in flight at a time; a further one cancels the oldest."""
HANDSHAKE_S: Final = 10.0
SHUTDOWN_S: Final = 10.0
"""The time that a closing connection has to send its last bytes and to exchange TLS's close_notify."""
# asyncio's own servers pause for as long.
_NO_RESOURCES_S: Final = 1.0
_LOG_GAP_S: Final = 1.0


class TlsAcceptor:
    """Accepts on a listening socket, which it owns from now on, and makes a protocol of each finished handshake.

    The loops' own TLS servers neither bound nor show the handshakes in flight, and a peer that opens many and says
    nothing would cost a file descriptor each. Here the oldest handshake is cancelled: clients that keep talking are
    done sooner.

    Attributes:
        context: the TLS settings of the next handshake.
    """

    def __init__(
        self, listening: socket.socket, context: SSLContext, connect: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self.context = context
        self._connect = connect
        # A dict keeps the order in which they began, so the first one is the oldest.
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._next_log_s = 0.0
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Stop accepting and cancel the handshakes in flight; the sockets close in the next turns of the loop."""
        self._accepting.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    peer, _ = await loop.sock_accept(self._listening)
                except ConnectionError:
                    continue  # the peer was gone before it was accepted
                except OSError as error:
                    # Most likely there is no file descriptor left. Without a pause this loop would spin on the waiting
                    # peer.
                    log.error("cannot accept connections for %g s: %s", _NO_RESOURCES_S, error)
                    await asyncio.sleep(_NO_RESOURCES_S)
                    continue
                self._begin(peer)
                # While peers wait, accepting succeeds without a turn of the loop: the other connections get one here.
                await asyncio.sleep(0)
        finally:
            # Not in ``close``: the loop watches the descriptor until this task has ended.
            self._listening.close()

    def _begin(self, peer: socket.socket) -> None:
        if len(self._handshakes) >= MAX_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            # Removed here, not in ``_end``, which runs in a later turn: the next peer must not find it as the oldest
            # again.
            del self._handshakes[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._shake_hands(peer))
        self._handshakes[task] = None
        task.add_done_callback(partial(self._end, peer))

    def _end(self, peer: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        if task.cancelled():
            # A handshake that was cancelled before its first step has no transport that would close the socket.
            peer.close()

    async def _shake_hands(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._connect,
                peer,
                ssl=self.context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:
            # SSLError and the error for a handshake that takes too long are OSErrors. The transport has closed the
            # socket.
            self._report(error)

    def _report(self, error: OSError) -> None:
        """Log a failed handshake, at most one a second: peers must not be able to fill the log."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + _LOG_GAP_S
            log.info("a TLS handshake failed: %s", str(error) or type(error).__name__)
