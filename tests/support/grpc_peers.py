"""Clients of the gRPC port: the official one, and one that sees the frames."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

CALL_S = 20.0
INFER = "/inference.GRPCInferenceService/ModelInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"


@contextlib.contextmanager
def calling(url: str, **options: object) -> Iterator[triton.InferenceServerClient]:
    """The official client with a connection of its own; ``options`` are those of the client."""
    # Channels of one process share connections unless something about them differs.
    own = ("naiad.test_peer", str(time.monotonic_ns()))
    sizes = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    client = triton.InferenceServerClient(url, channel_args=[own, *sizes], **options)
    try:
        yield client
    finally:
        client.close()


def infer(client: triton.InferenceServerClient, model: str = "same", count: int = 16, **options: object) -> np.ndarray:
    values = np.arange(count, dtype=np.float32)
    given = triton.InferInput("INPUT0", values.shape, "FP32")
    given.set_data_from_numpy(values)
    got = client.infer(model, [given], client_timeout=CALL_S, **options).as_numpy("OUTPUT0")
    assert np.array_equal(got, values)
    return got


def is_refused(client: triton.InferenceServerClient) -> bool:
    """Whether the server cannot be reached in this way."""
    try:
        client.is_server_live(client_timeout=20)
    except InferenceServerException as error:
        assert error.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"), error
        return True
    return False


class Http2Peer:
    """A client that sees the frames: the ``h2`` library on a plain socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=CALL_S)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.connection = h2.connection.H2Connection(config)
        self.connection.initiate_connection()
        self.seen: list[h2.events.Event] = []
        self.ended = False
        self._unread = bytearray()
        self.flush()

    def __enter__(self) -> Http2Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.connection.data_to_send())

    def call(self, path: str, message: bytes = b"", *headers: tuple[str, str]) -> int:
        """Begin a call with one message; its stream."""
        stream = self.connection.get_next_available_stream_id()
        fixed = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        kinds = [("content-type", "application/grpc"), ("te", "trailers"), *headers]
        self.connection.send_headers(stream, [*fixed, *kinds])
        self.connection.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
        self.flush()
        return stream

    def read(self) -> bool:
        """Take what has come; False at the end of the connection. Pings and settings are answered."""
        data = self.socket.recv(65536)
        self.ended = not data
        self._unread += data
        # Frame by frame, since the library takes none after GOAWAY.
        while len(self._unread) >= 9 and len(self._unread) >= (size := 9 + int.from_bytes(self._unread[:3], "big")):
            frame = bytes(self._unread[:size])
            del self._unread[:size]
            if not count(self, h2.events.ConnectionTerminated):
                self.seen += self.connection.receive_data(frame)
                self.flush()
        return not self.ended

    def wait(self, kind: type[h2.events.Event], within_s: float = CALL_S) -> h2.events.Event:
        """The first event of a kind."""
        self.socket.settimeout(within_s)
        while True:
            found = next((e for e in self.seen if isinstance(e, kind)), None)
            if found is not None:
                return found
            assert self.read(), f"the connection ended; seen: {self.seen}"

    def wait_end(self, within_s: float = CALL_S) -> None:
        """Until the server has closed the connection."""
        self.socket.settimeout(within_s)
        with contextlib.suppress(ConnectionResetError):
            while self.read():
                pass


def count(peer: Http2Peer, kind: type[h2.events.Event]) -> int:
    return sum(isinstance(e, kind) for e in peer.seen)


def infer_message(count: int) -> bytes:
    """A request with ``count`` zeros."""
    request = service_pb2.ModelInferRequest(model_name="same")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[count])
    request.raw_input_contents.append(bytes(4 * count))
    return bytes(request.SerializeToString())
