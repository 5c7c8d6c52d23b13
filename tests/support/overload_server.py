"""What tests of overload share: a server's own figures, and requests that stay unanswered for a while."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from naiad.testing import RunningServer, request_bytes, wait_until
from support.served_models import numbers

IN_FLIGHT = "naiad_requests_in_flight"
BYTES = "naiad_request_bytes_in_flight"
ZERO_S = 15.0


def figures(server: RunningServer) -> dict[str, float]:
    """The page of metrics: values by name with labels."""
    page = server.metrics_page()
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def held(server: RunningServer) -> tuple[float, float]:
    """Requests in flight, and their bytes."""
    found = figures(server)
    return found[IN_FLIGHT], found[BYTES]


def refused(server: RunningServer, bound: str) -> float:
    """How many requests a bound has refused so far."""
    return figures(server)[f'naiad_requests_refused{{bound="{bound}"}}']


def wait_held(server: RunningServer, requests: int) -> None:
    """Wait until so many requests are in flight."""
    wait_until(lambda: held(server)[0] == requests, ZERO_S, f"{requests} requests are in flight")


def wait_empty(server: RunningServer) -> None:
    """Wait until nothing is in flight, not a byte."""
    wait_until(lambda: held(server) == (0, 0), ZERO_S, "nothing is in flight")


def wait_taken(server: RunningServer, peer: socket.socket) -> None:
    """Wait until the server has read all that was sent on a connection."""
    ports = peer.getsockname()[1], server.http

    def is_taken() -> bool:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        queues = {tuple(int(end.partition(":")[2], 16) for end in row[1:3]): row[4].split(":") for row in rows}
        # What this side has not sent yet, and what the server's side has not read.
        return int(queues[ports][0], 16) == int(queues[ports[::-1]][1], 16) == 0

    wait_until(is_taken, ZERO_S, "what was sent is read")


def inference(model: str, values: Sequence[int] = (1,), headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """An inference request as it goes over the wire."""
    return request_bytes("POST", f"/v2/models/{model}/infer", json.dumps(numbers(values)).encode(), headers)


@contextmanager
def waiting(server: RunningServer, model: str, count: int) -> Iterator[list[socket.socket]]:
    """``count`` requests to a model, each on a connection of its own, which ends with the block."""
    with ExitStack() as stack:
        peers = [stack.enter_context(server.connect()) for _ in range(count)]
        for peer in peers:
            peer.sendall(inference(model))
        yield peers
