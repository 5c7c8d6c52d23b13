"""One request sent on a schedule, however long the answers take: PORT CONNECTIONS RATE SECONDS FILE.

A latency counts from the time at which its request was due. So what waits because all connections are busy, or because
this process was not run, is not hidden, and a server that stands still costs all the requests that were due meanwhile.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from array import array
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, SelectSelector

from .closed_loop import LENGTH, percentile_us
from .figures import CaseError

GRACE_SECONDS = 30
LEAD_SECONDS = 0.05
"""Between the last connection and the first request."""
READ_BYTES = 1 << 16
SUCCESS = b"HTTP/1.1 200 "
SLACK = Path("/proc/self/timerslack_ns")


class Exchange:
    """One connection and the request under way on it, which was due at ``due``."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._received = bytearray()

    def ask(self, wire: bytes, due: float) -> None:
        """Send a request."""
        self.due = due
        self.socket.sendall(wire)

    def is_answered(self) -> bool:
        """Take in what has come; whether that is all of the answer.

        Raises:
            CaseError: it is not a success, or the connection is closed.
        """
        received = self._received
        data = self.socket.recv(READ_BYTES)
        received += data
        if not data or (len(received) >= len(SUCCESS) and not received.startswith(SUCCESS)):
            raise CaseError(f"expected 200, got {bytes(received[:80])!r}{'' if data else ' and the end'}")
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        length = LENGTH.search(received, 0, head_end + 2)
        if length is None:
            raise CaseError(f"an answer without a length: {bytes(received[:head_end])!r}")
        if len(received) < head_end + 4 + int(length[1]):
            return False
        received.clear()
        return True


def latencies_at(port: int, wire: bytes, connections: int, rate: int, seconds: float) -> array[float]:
    """The latencies, in seconds, of as many requests as are due in ``seconds``, each from when it was due.

    Raises:
        CaseError: an answer was no success, or some were missing long after the last one was due.
    """
    exchanges = [Exchange(port) for _ in range(connections)]
    try:
        return _keep_schedule(exchanges, wire, rate, seconds)
    finally:
        for exchange in exchanges:
            exchange.socket.close()


def _keep_schedule(exchanges: list[Exchange], wire: bytes, rate: int, seconds: float) -> array[float]:
    found = array("d")
    total, sent = int(rate * seconds), 0
    idle = list(exchanges)
    began = time.perf_counter() + LEAD_SECONDS
    with SelectSelector() as selector:
        for exchange in exchanges:
            selector.register(exchange.socket, EVENT_READ, exchange)
        while len(found) < total:
            now = time.perf_counter()
            while idle and sent < total and began + sent / rate <= now:
                idle.pop().ask(wire, began + sent / rate)
                sent += 1
            if now > began + seconds + GRACE_SECONDS:
                raise CaseError(f"{total - len(found)} of {total} requests had no answer after {GRACE_SECONDS} s")
            is_due = bool(idle) and sent < total
            wait = max(0.0, began + sent / rate - time.perf_counter()) if is_due else GRACE_SECONDS
            done = [key.data for key, _ in selector.select(wait) if key.data.is_answered()]
            idle += _count(done, found)
    return found


def _count(done: Iterable[Exchange], found: array[float]) -> Iterable[Exchange]:
    now = time.perf_counter()
    found.extend(now - exchange.due for exchange in done)
    return done


def main() -> None:
    """Keep the schedule and print one JSON line."""
    port, connections, rate, seconds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    with suppress(OSError):
        # Linux wakes a process up to 50 us late otherwise.
        SLACK.write_text("1")
    result: dict[str, object] = {"requests": 0, "seconds": seconds, "wrong": 0, "problem": ""}
    try:
        found = latencies_at(port, Path(sys.argv[5]).read_bytes(), connections, rate, seconds)
    except (CaseError, OSError) as error:
        result |= {"wrong": 1, "problem": str(error)}
    else:
        latencies = array("d", sorted(found))
        result["requests"] = len(latencies)
        result |= {f"p{p}_us": percentile_us(latencies, p / 100) for p in (50, 95, 99)}
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
