"""A server that may use little memory keeps little of what clients send and of what they do not take."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from naiad.frontends.grpc.settings import grpc_limits
from naiad.frontends.net.memory_shares import MemoryShares
from naiad.options import ServerOptions
from naiad.testing import RESPONSE_S, RunningServer, request_bytes, serving, wait_until
from support.served_models import identity, numbers, write_model

MEGABYTE = 1 << 20
MEMORY = 1536 * MEGABYTE
"""Address space, of which the interpreter and the libraries take a third without using it."""


def little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("little")
    write_model(folder / "models", "same", identity())
    with serving(folder / "log", "--model-repository", folder / "models", preexec_fn=little_memory) as running:
        yield running
        assert "Traceback" not in running.log
        assert "MemoryError" not in running.log


def binary_request(size: int) -> bytes:
    """A request for ``size`` bytes, as it goes over HTTP."""
    described = {"name": "INPUT0", "datatype": "INT32", "shape": [size // 4], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [described], "parameters": {"binary_data_output": True}}).encode()
    lengths = (("Inference-Header-Content-Length", str(len(head))),)
    return request_bytes("POST", "/v2/models/same/infer", head + bytes(size), lengths)


@pytest.mark.slow
def test_answers_that_nobody_reads(server: RunningServer) -> None:
    request = binary_request(24 * MEGABYTE)
    with ExitStack() as closing:
        for _ in range(16):
            peer = closing.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(RESPONSE_S)
            peer.connect((server.host, server.http))
            peer.sendall(request)
        wait_until(lambda: "dropped a connection" in server.log, 20, "connections are dropped")
        assert server.memory_bytes() < MEMORY // 2
        assert server.infer("same", numbers([1, 2])).status == 200


def test_the_shares_of_little_memory() -> None:
    shares = MemoryShares.of(1024 * MEGABYTE)
    limits = grpc_limits(ServerOptions(), shares)
    assert (limits.max_partial_bytes, limits.max_waiting_bytes) == (256 * MEGABYTE, 128 * MEGABYTE)
    assert shares.in_flight == 256 * MEGABYTE


def test_who_allows_more_in_flight_allows_larger_messages() -> None:
    assert MemoryShares.of(1024 * MEGABYTE, 700 * MEGABYTE).arriving == 700 * MEGABYTE
    assert MemoryShares.of(1024 * MEGABYTE, 7 * MEGABYTE).arriving == 256 * MEGABYTE
    assert MemoryShares.of(1024 * MEGABYTE, 7 * MEGABYTE).in_flight == 7 * MEGABYTE
