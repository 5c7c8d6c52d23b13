"""The gRPC client of the load generator against other servers: grpcio's, and frames made by hand."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import pytest

from naiad.config.messages import message_class
from naiad.perf.input.build import build_streams
from naiad.perf.options import parse_perf
from naiad.perf.target.open import open_target
from naiad.perf.target.protocol import TargetError
from naiad.testing import RunningServer, serving
from support.perf_runs import measure, measure_level, windows
from support.served_models import identity, write_model

JOIN_S = 20
OK = [("grpc-status", "0")]


@pytest.fixture(scope="module")
def grpcio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose gRPC is that of the grpcio package."""
    folder = tmp_path_factory.mktemp("grpcio")
    write_model(folder / "models", "id", identity("TYPE_FP32", "16", max_batch_size=8))
    write_model(folder / "models", "large", identity("TYPE_FP32", "150000"))
    words = ("--grpc-transport", "grpcio", "--model-repository", folder / "models")
    with serving(folder / "log", *words) as running:
        yield running


@pytest.mark.parametrize("way", [(), ("--streaming",)])
@pytest.mark.parametrize("model", ["id", "large"])
def test_a_server_of_grpcio(grpcio: RunningServer, way: tuple[str, ...], model: str) -> None:
    words = ("-m", model, "-i", "grpc", "-u", grpcio.grpc_url, *way)
    level = measure_level(*words, "--request-count", 60, "--concurrency-range", 20)
    assert (level.merged.requests, dict(level.merged.errors)) == (60, {})
    assert level.merged.server is not None
    assert level.merged.server.successes == 60


Behave = Callable[[h2.connection.H2Connection, int, int], None]
"""Answers the stream of the inference request with this number, from 1."""


class Http2Server:
    """A server of one model in a thread, whose answers to inference requests a test decides.

    Attributes:
        settings: what it sends when a connection begins.
        requests: how many inference requests have come.
        connections: how many connections have been made.
    """

    def __init__(self, behave: Behave, settings: dict[int, int]) -> None:
        self.behave = behave
        self.settings = settings
        self.requests = 0
        self.connections = 0
        self.greatest = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        peer.local_settings = h2.settings.Settings(client=False, initial_values=self.settings)
        peer.initiate_connection()
        paths: dict[int, str] = {}
        open_streams: set[int] = set()
        # The library takes nothing more once it has ended a connection, and clients close theirs when they are done.
        with connection, suppress(OSError, h2.exceptions.ProtocolError):
            connection.sendall(peer.data_to_send())
            while data := connection.recv(65536):
                for event in peer.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        paths[event.stream_id] = dict(event.headers)[":path"]
                        open_streams.add(event.stream_id)
                        self.greatest = max(self.greatest, len(open_streams))
                    elif isinstance(event, h2.events.DataReceived):
                        peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        open_streams.discard(event.stream_id)
                        self.answer(peer, event.stream_id, paths.pop(event.stream_id))
                connection.sendall(peer.data_to_send())

    def answer(self, peer: h2.connection.H2Connection, stream: int, path: str) -> None:
        method = path.rpartition("/")[2]
        if method == "ModelMetadata":
            tensor = {"name": "X", "datatype": "FP32", "shape": [4]}
            found = message_class("ModelMetadataResponse")(name="m", versions=["1"], inputs=[tensor], outputs=[tensor])
            respond(peer, stream, found.SerializeToString())
        elif method == "ModelInfer":
            self.requests += 1
            self.behave(peer, stream, self.requests)
        else:
            peer.send_headers(stream, [(":status", "200"), ("grpc-status", "12")], end_stream=True)

    def close(self) -> None:
        """Take no further connection."""
        if self.listener.fileno() < 0:
            return
        # A shutdown wakes the thread; to close alone does not.
        with self.listener:
            self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(JOIN_S)


def respond(
    peer: h2.connection.H2Connection, stream: int, message: bytes = b"", trailers: list[tuple[str, str]] = OK
) -> None:
    """Send a message and how the call ended."""
    peer.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
    peer.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
    peer.send_headers(stream, trailers, end_stream=True)


@contextmanager
def http2_server(behave: Behave, settings: dict[int, int] | None = None) -> Iterator[Http2Server]:
    """A running server."""
    server = Http2Server(behave, settings or {})
    try:
        yield server
    finally:
        server.close()


def run(server: Http2Server, *words: object) -> dict[tuple[str, str], int]:
    """The errors of a run of 50 requests; all others were answered."""
    level = measure_level("-m", "m", "-i", "grpc", "-u", server.url, "--request-count", 50, *words)
    assert level.merged.requests + level.merged.errors.total() == 50
    return dict(level.merged.errors)


def test_a_server_that_only_knows_the_protocol() -> None:
    with http2_server(lambda peer, stream, number: respond(peer, stream)) as server:
        assert run(server, "--concurrency-range", 8) == {}


def test_as_many_streams_as_the_server_takes() -> None:
    few = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 3}
    with http2_server(lambda peer, stream, number: respond(peer, stream), few) as server:
        assert run(server, "--concurrency-range", 12) == {}
        assert server.greatest <= 3


def test_a_window_that_is_smaller_than_a_message() -> None:
    small = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 20}
    with http2_server(lambda peer, stream, number: respond(peer, stream), small) as server:
        assert run(server, "--concurrency-range", 4) == {}


def test_a_server_without_a_header_table() -> None:
    none = {h2.settings.SettingCodes.HEADER_TABLE_SIZE: 0}
    with http2_server(lambda peer, stream, number: respond(peer, stream), none) as server:
        assert run(server) == {}


def test_parameters_of_requests() -> None:
    """As protobuf's own library reads them."""
    words = (
        "--request-parameter",
        "a:7:int",
        "--request-parameter",
        "b:true:bool",
        "--request-parameter",
        "c:d:string",
    )
    with http2_server(lambda peer, stream, number: respond(peer, stream)) as server:
        settings = parse_perf(["-m", "m", "-i", "grpc", "-u", server.url, *words], {})
        target = open_target(settings)
        (stream,) = build_streams(settings.input, target.describe())
        request: Any = target.encode(stream.steps[0], 0).plain
    found = message_class("ModelInferRequest").FromString(request.message[5:]).parameters
    assert (found["a"].int64_param, found["b"].bool_param, found["c"].string_param) == (7, True, "d")


def test_failures_have_the_name_and_the_text_of_their_status() -> None:
    def behave(peer: h2.connection.H2Connection, stream: int, number: int) -> None:
        status = [("grpc-status", "8"), ("grpc-message", "no%20room")]
        if number % 5 == 0:
            peer.send_headers(stream, [(":status", "200"), *status], end_stream=True)
        else:
            respond(peer, stream)

    with http2_server(behave) as server:
        assert run(server) == {("gRPC RESOURCE_EXHAUSTED", "no room"): 10}


def test_a_stream_that_is_reset() -> None:
    def behave(peer: h2.connection.H2Connection, stream: int, number: int) -> None:
        if number == 7:
            peer.reset_stream(stream, 2)
        else:
            respond(peer, stream)

    with http2_server(behave) as server:
        assert run(server) == {("connection lost", "the server reset the stream with INTERNAL_ERROR"): 1}


def test_a_server_that_asks_for_a_new_connection_loses_nothing() -> None:
    def behave(peer: h2.connection.H2Connection, stream: int, number: int) -> None:
        respond(peer, stream)
        if number % 10 == 0:
            peer.close_connection(0, last_stream_id=stream)

    with http2_server(behave) as server:
        assert run(server) == {}
        assert server.connections > 5


@pytest.mark.slow
def test_an_open_loop_goes_on_when_further_connections_are_refused() -> None:
    """A connection has 16 calls. Those that need another one fail until the first ones are answered, 0.3 s later."""
    held: list[int] = []

    def behave(peer: h2.connection.H2Connection, stream: int, number: int) -> None:
        if not 2 <= number <= 17:
            respond(peer, stream)
            return
        held.append(stream)
        if number == 2:
            server.close()
        if number == 17:
            time.sleep(0.3)
            for each in held:
                respond(peer, each)

    with http2_server(behave) as server:
        found = run(server, "--request-rate-range", 50)
    assert found.keys() == {("cannot connect", "Connection refused")}
    assert 5 <= found["cannot connect", "Connection refused"] <= 34


def test_a_call_that_ends_without_a_message() -> None:
    def behave(peer: h2.connection.H2Connection, stream: int, number: int) -> None:
        if number == 3:
            peer.send_headers(stream, [(":status", "200"), ("grpc-status", "0")], end_stream=True)
        else:
            respond(peer, stream)

    with http2_server(behave) as server:
        assert run(server) == {("bad response", "the call ended with OK but without a message"): 1}


def test_a_proxy_without_grpc_behind_it() -> None:
    def behave(peer: h2.connection.H2Connection, stream: int, number: int) -> None:
        peer.send_headers(stream, [(":status", "502")], end_stream=True)

    with http2_server(behave) as server, pytest.raises(TargetError, match="HTTP 502"):
        measure("-m", "m", "-i", "grpc", "-u", server.url, *windows(100))
