"""HTTP/2 tools that know nothing of gRPC: h2load, curl and the h2 library, and HTTP/1.1 on the port of gRPC."""

from __future__ import annotations

import gzip
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import h2.events
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import CALL_S, floats, output, request_for, same, wait_until_idle
from interop.models import DELAY_MS
from naiad.testing import RunningServer, read_response, request_bytes
from support.grpc_peers import INFER, LIVE, Http2Peer

GRPC = ("-H", "content-type: application/grpc", "-H", "te: trailers")
CALLS = 5000


def framed(message: bytes) -> bytes:
    """A message as gRPC puts it into the body of a request."""
    return struct.pack(">BI", 0, len(message)) + message


# h2load


@pytest.fixture(scope="module")
def h2load() -> str:
    found = shutil.which("h2load")
    if not found:
        pytest.skip("h2load is not installed (apt-get install nghttp2-client)")
    return found


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("size", [16, 20_000])
def test_h2load(h2load: str, server: RunningServer, tmp_path: Path, threads: int, size: int) -> None:
    request = request_for("id_FP32", np.zeros((1, size), np.float32))
    body = tmp_path / "message"
    body.write_bytes(framed(request.SerializeToString()))
    calls = CALLS if size < 1000 else CALLS // 10
    before = server.statistics("id_FP32")["inference_count"]
    spread = ("-c", "16", "-m", "8", "-n", str(calls), "-t", str(threads))
    finished = subprocess.run(
        [h2load, *spread, "-d", str(body), *GRPC, f"http://{server.grpc_url}{INFER}"],
        capture_output=True,
        text=True,
        timeout=3 * CALL_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert f"{calls} succeeded, 0 failed, 0 errored, 0 timeout" in finished.stdout
    assert f"status codes: {calls} 2xx, 0 3xx, 0 4xx, 0 5xx" in finished.stdout
    data = re.search(r"\((\d+)\) data$", finished.stdout, re.MULTILINE)
    # It does not look at grpc-status; a call that failed would have no data.
    assert data and int(data[1]) >= calls * size * 4
    assert server.statistics("id_FP32")["inference_count"] == before + calls


# curl


@pytest.fixture(scope="module")
def curl() -> str:
    found = shutil.which("curl")
    if not found:
        pytest.skip("curl is not installed")
    if "HTTP2" not in subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("curl was built without HTTP/2")
    return found


def ask(curl: str, server: RunningServer, path: str, *arguments: str) -> tuple[str, bytes]:
    """The fields of an answer, trailers included, as curl shows them with -v, and its body."""
    command = [curl, "--silent", "--verbose", "--max-time", str(CALL_S), "--http2-prior-knowledge", *arguments]
    finished = subprocess.run([*command, f"http://{server.grpc_url}{path}"], capture_output=True, check=False)
    fields = [line[2:] for line in finished.stderr.decode().splitlines() if line.startswith("< ")]
    return "\n".join(field.rstrip() for field in fields), finished.stdout


def test_curl_calls_a_method(curl: str, server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(framed(b""))
    fields, body = ask(curl, server, LIVE, "--data-binary", f"@{tmp_path / 'body'}", *GRPC)
    assert fields.startswith("HTTP/2 200")
    assert "content-type: application/grpc" in fields
    assert re.search(r"^grpc-status: 0$", fields, re.MULTILINE)
    assert pb.ServerLiveResponse.FromString(body[5:]).live


def test_curl_reads_an_error(curl: str, server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(framed(floats("nö%pe", 1).SerializeToString()))
    fields, body = ask(curl, server, INFER, "--data-binary", f"@{tmp_path / 'body'}", *GRPC)
    assert fields.startswith("HTTP/2 200")
    assert body == b""
    assert re.search(r"^grpc-status: 5$", fields, re.MULTILINE)
    text = re.search(r"^grpc-message: (.*)$", fields, re.MULTILINE)
    assert text and text[1] == "Request for unknown model: 'n%C3%B6%25pe' is not found"


NO_CALLS = {
    "a POST": (("--request", "POST"), 415),
    "a form": (("--data", "{}"), 415),
    "JSON": (("--data", "{}", "-H", "content-type: application/json"), 415),
    "no type": (("--data", "{}", "-H", "content-type:"), 415),
    "a longer name": (("--data", "{}", "-H", "content-type: application/grpcx"), 415),
    "an upload": (("--data", "x" * 60_000), 415),
    "GET": ((), 405),
    "PUT": (("--request", "PUT", "--data", "{}", *GRPC), 405),
}


@pytest.mark.parametrize("what", NO_CALLS)
def test_curl_with_something_that_is_no_call(transport: str, server: RunningServer, curl: str, what: str) -> None:
    arguments, status = NO_CALLS[what]
    fields, _ = ask(curl, server, LIVE, *arguments)
    if transport == "naiad":
        assert fields.startswith(f"HTTP/2 {status}")
    else:
        # grpcio resets most of them.
        assert "grpc-status: 0" not in fields
    fields, _ = ask(curl, server, LIVE, "--request", "POST", *GRPC)
    assert "grpc-status: 13" in fields


def test_http1_on_the_port_of_grpc(transport: str, server: RunningServer) -> None:
    with server.connect(server.grpc) as peer:
        peer.sendall(request_bytes("GET", "/v2/health/live", None))
        if transport == "naiad":
            answer = read_response(peer)
            assert answer.status == 400
            assert b"gRPC" in answer.body and b"HTTP/2" in answer.body
            assert peer.recv(1) == b""
        else:
            # grpcio hangs up, after frames of its own.
            assert b"HTTP/1.1" not in b"".join(iter(lambda: peer.recv(4096), b""))


# The h2 library


def headers_of(peer: Http2Peer) -> dict[str, str]:
    """The fields before the first message of the only answer."""
    found = peer.wait(h2.events.ResponseReceived)
    assert isinstance(found, h2.events.ResponseReceived)
    return dict(found.headers)  # type: ignore[arg-type]


def trailers_of(peer: Http2Peer) -> dict[str, str]:
    """The fields behind the messages of the only answer."""
    found = peer.wait(h2.events.TrailersReceived)
    assert isinstance(found, h2.events.TrailersReceived)
    return dict(found.headers)  # type: ignore[arg-type]


def data_of(peer: Http2Peer) -> bytes:
    """The data of the only answer, once it has ended."""
    peer.wait(h2.events.StreamEnded)
    return b"".join(e.data for e in peer.seen if isinstance(e, h2.events.DataReceived))


def test_the_fields_of_an_answer(server: RunningServer) -> None:
    with Http2Peer(server.grpc) as peer:
        peer.call(LIVE)
        data = data_of(peer)
        assert pb.ServerLiveResponse.FromString(data[5:]).live
        headers = headers_of(peer)
        assert (headers[":status"], headers["content-type"]) == ("200", "application/grpc")
        assert "grpc-encoding" not in headers or headers["grpc-encoding"] == "identity"
        assert trailers_of(peer)["grpc-status"] == "0"


ENCODINGS = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_answers_are_compressed_on_the_wire(compressing: RunningServer, encoding: str) -> None:
    values = np.arange(3000, dtype=np.uint32).view(np.uint8)
    message = request_for("large", values, "UINT8").SerializeToString()
    with Http2Peer(compressing.grpc) as peer:
        peer.call(INFER, message, ("grpc-accept-encoding", f"identity,{encoding}"))
        data = data_of(peer)
        compressed, size = struct.unpack_from(">BI", data)
        if headers_of(peer).get("grpc-encoding") == encoding:
            assert (compressed, size) == (1, len(data) - 5)
            assert size < values.size / 2
            message = ENCODINGS[encoding](data[5:])
        else:
            # grpcio compresses in one encoding alone, and sends to others what they take as it is.
            assert compressed == 0
            message = data[5:]
        assert same(output(pb.ModelInferResponse.FromString(message)), values)


def test_at_least_gzip_is_used(compressing: RunningServer) -> None:
    message = request_for("large", np.zeros(12_000, np.uint8), "UINT8").SerializeToString()
    with Http2Peer(compressing.grpc) as peer:
        peer.call(INFER, message, ("grpc-accept-encoding", "identity,deflate,gzip"))
        assert len(data_of(peer)) < 1000
        assert headers_of(peer)["grpc-encoding"] in ENCODINGS


@pytest.mark.slow
def test_the_server_keeps_deadlines_by_itself(server: RunningServer, slow: str) -> None:
    """The peer says when, and then waits; one of its two requests runs, the other waits in the queue."""
    message = floats(slow, 1).SerializeToString()
    with Http2Peer(server.grpc) as peer:
        streams = [peer.call(INFER, message, ("grpc-timeout", f"{DELAY_MS // 3}m")) for _ in range(2)]
        ended: dict[int, dict[str, str]] = {}
        while len(ended) < len(streams):
            assert peer.read()
            answers = [e for e in peer.seen if isinstance(e, h2.events.ResponseReceived)]
            ended = {e.stream_id: dict(e.headers) for e in answers}  # type: ignore[arg-type]
        assert {fields["grpc-status"] for fields in ended.values()} == {"4"}
        wait_until_idle(server, slow, ran=1)


@pytest.mark.slow
def test_a_connection_that_goes_away_cancels_its_requests(server: RunningServer, slow: str) -> None:
    with Http2Peer(server.grpc) as peer:
        for _ in range(5):
            peer.call(INFER, floats(slow, 1).SerializeToString())
        server.wait_pending(slow, 4)
    wait_until_idle(server, slow, ran=1)
