"""Ten thousand connections come and go, and leave nothing behind."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import h2.config
import h2.connection
import psutil
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import CALL_S, channel, floats, output, stub
from naiad.testing import RESPONSE_S, RunningServer, request_bytes, serving, wait_until
from support.grpc_peers import INFER, LIVE
from support.served_models import identity, write_model

AT_ONCE = 100
GROWTH_BYTES = {"naiad": 8 << 20, "grpcio": 64 << 20}
"""How much more memory is no leak: ten thousand lost connections of one KB each would be more than the first figure.
grpcio keeps what its largest crowd of calls needed, and when it gets to them is its own affair."""
SEED = 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def alone(transport: str, tmp_path: Path) -> Iterator[RunningServer]:
    """A server that nobody else uses, since its memory is looked at."""
    write_model(tmp_path / "models", "same", identity("TYPE_FP32", "-1"))
    with serving(tmp_path / "log", tmp_path / "models", "--grpc-transport", transport) as running:
        yield running


def opening(path: str, message: bytes, ends: bool) -> bytes:
    """All bytes of a connection with one call, by the h2 library."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    fixed = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    connection.send_headers(1, [*fixed, ("content-type", "application/grpc"), ("te", "trailers")])
    connection.send_data(1, struct.pack(">BI", 0, len(message)) + message, end_stream=ends)
    return bytes(connection.data_to_send())


def preface() -> bytes:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    return bytes(connection.data_to_send())


def openings() -> list[bytes]:
    """What the connections send, one after another."""
    begun, infer = preface(), floats("same", 1, 2).SerializeToString()
    return [
        begun,
        opening(LIVE, b"", ends=True),
        opening(INFER, infer, ends=True),
        opening(INFER, infer, ends=False),
        opening(INFER, infer, ends=True)[:-7],
        b"",
        begun[:10],
        begun + b"\x00\x00\x05\x04\x00\x00\x00\x00\x00" + bytes(5),
        begun + b"\xff\xff\xff" + bytes(6),
        random.Random(SEED).randbytes(300),
        request_bytes("GET", "/v2/health/live", None),
    ]


def come_and_go(server: RunningServer, count: int) -> None:
    """So many connections, some of them at once. Every second one ends in order, the others by a reset.

    The next ones wait until the server has done with these: what it needs for a crowd is not looked at here.
    """
    sent, files = openings(), open_files(server)
    for begin in range(0, count, AT_ONCE):
        peers = [server.connect(server.grpc) for _ in range(AT_ONCE)]
        for i, peer in enumerate(peers, begin):
            with suppress(ConnectionError):
                peer.sendall(sent[i % len(sent)])
        for i, peer in enumerate(peers, begin):
            if sent[i % len(sent)].startswith(PREFACE):
                # The server has begun to serve it, and says so.
                assert peer.recv(1)
            leave(peer, in_order=i % 2 == 0)
        wait_until_alone(server, files)


def leave(peer: socket.socket, in_order: bool) -> None:
    if not in_order:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def open_files(server: RunningServer) -> int:
    return int(psutil.Process(server.process.pid).num_fds())


def wait_until_alone(server: RunningServer, files: int) -> None:
    """Wait until the server has as many files open as it had before anybody came."""
    wait_until(
        lambda: open_files(server) <= files, RESPONSE_S, f"{files} files open, as before; now {open_files(server)}"
    )


def answers(server: RunningServer) -> bool:
    with channel(server) as opened:
        assert output(stub(opened).ModelInfer(floats("same", 7), timeout=CALL_S)) == [7]
        return bool(stub(opened).ServerReady(pb.ServerReadyRequest(), timeout=CALL_S).ready)


COUNTS = [pytest.param(1_000, id="1,000"), pytest.param(10_000, id="10,000", marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
def test_connections_come_and_go(transport: str, alone: RunningServer, count: int) -> None:
    files = open_files(alone)
    come_and_go(alone, count // 5)
    assert answers(alone)
    wait_until_alone(alone, files)
    before = alone.memory_bytes()
    come_and_go(alone, count)
    assert answers(alone)
    wait_until_alone(alone, files)
    grown = alone.memory_bytes() - before
    assert grown < GROWTH_BYTES[transport], f"{count} connections left {grown / 1e6:.1f} MB behind"


@pytest.mark.slow
def test_a_thousand_connections_at_once(alone: RunningServer) -> None:
    """All stay open; the first and the last one are answered."""
    begun = opening(INFER, floats("same", 1).SerializeToString(), ends=True)
    files = open_files(alone)
    peers = [alone.connect(alone.grpc) for _ in range(1000)]
    try:
        for peer in peers:
            peer.sendall(begun)
        for peer in peers:
            received = b""
            # The name of the output is in every answer.
            while b"OUTPUT0" not in received:
                data = peer.recv(4096)
                assert data, "the server closed the connection"
                received += data
    finally:
        for peer in peers:
            leave(peer, in_order=False)
    wait_until_alone(alone, files)
    assert answers(alone)
