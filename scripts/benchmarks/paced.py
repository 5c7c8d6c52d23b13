"""One request each millisecond over one connection, in a process of its own; latencies count from the sending.

Arguments: PORT SECONDS FILE. It works so little that it hardly competes with the server, and asks for the shortest time
slice, so that what is measured is how long the server takes to answer.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

from naiad.processes.time_slice import shorten_time_slice

PERIOD_S = 0.001
MARK = "RESULT "
OK = b"HTTP/1.1 200"
# More than a small response with its headers.
RESPONSE_BYTES = 1 << 16


def send(port: int, seconds: float, wire: bytes) -> tuple[list[float], int]:
    """The latencies in seconds, and how many responses were no success."""
    latencies: list[float] = []
    wrong = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = begin = time.perf_counter()
        while due - begin < seconds:
            due += PERIOD_S
            time.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            # What is late is not made up for.
            due = max(due, sent)
            connection.sendall(wire)
            # A response of a few hundred bytes comes as a whole.
            wrong += not connection.recv(RESPONSE_BYTES).startswith(OK)
            latencies.append(time.perf_counter() - sent)
    return latencies, wrong


def main() -> None:
    """Send, and print one JSON line as the wrk script does."""
    shorten_time_slice()
    seconds = float(sys.argv[2])
    latencies, wrong = send(int(sys.argv[1]), seconds, Path(sys.argv[3]).read_bytes())
    latencies.sort()
    result: dict[str, object] = {
        f"p{share}_us": latencies[len(latencies) * share // 100] * 1e6 for share in (50, 95, 99)
    }
    result |= {"requests": len(latencies), "seconds": seconds, "wrong": wrong, "problem": "no 200" if wrong else ""}
    print(MARK + json.dumps(result))


if __name__ == "__main__":
    main()
