"""TLS on the HTTP port of a whole server, with real clients and real certificates."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton

from naiad.testing import RESPONSE_S, HttpResponse, RunningServer, read_response, request_bytes, run_to_end, serving
from support.certificates import Authority, Identity, new_authority
from support.grpc_peers import calling
from support.grpc_peers import infer as infer_grpc


def files_of(own: Identity) -> tuple[object, ...]:
    return "--http-server-cert", own.cert, "--http-server-key", own.key


def context_of(authority: Authority, own: Identity | None = None, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.root))
    context.set_alpn_protocols(protocols or ["http/1.1"])
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


@contextlib.contextmanager
def secured(server: RunningServer, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.settimeout(RESPONSE_S)
        yield secure


def ask(server: RunningServer, context: ssl.SSLContext, path: str, *headers: tuple[str, str]) -> HttpResponse:
    with secured(server, context) as peer:
        peer.sendall(request_bytes("GET", path, None, headers))
        return read_response(peer)


def test_tls(tmp_path: Path, models: Path, authority: Authority) -> None:
    with serving(tmp_path / "log", models, *files_of(authority.issue("server"))) as server:
        context = context_of(authority)
        with secured(server, context) as peer:
            assert peer.selected_alpn_protocol() == "http/1.1"
            for _ in range(3):
                peer.sendall(request_bytes("GET", "/v2/health/ready", None, ()))
                assert read_response(peer).status == 200
        with pytest.raises((OSError, ConnectionError)):
            server.get("/v2/health/ready")
        assert ask(server, context, "/v2/health/ready").status == 200
        assert "Traceback" not in server.log


@pytest.mark.slow
@pytest.mark.parametrize("count", [16, 3_000_000])
def test_the_official_client(tmp_path: Path, models: Path, authority: Authority, count: int) -> None:
    with serving(tmp_path / "log", models, *files_of(authority.issue("server"))) as server:
        client = triton.InferenceServerClient(
            f"localhost:{server.http}", ssl=True, ssl_options={"ca_certs": str(authority.root)}
        )
        with contextlib.closing(client):
            given = triton.InferInput("INPUT0", [count], "FP32")
            values = np.arange(count, dtype=np.float32)
            given.set_data_from_numpy(values)
            for _ in range(3):
                assert np.array_equal(client.infer("same", [given]).as_numpy("OUTPUT0"), values)


@pytest.mark.slow
def test_connections_end_in_order(tmp_path: Path, models: Path, authority: Authority) -> None:
    """Where one direction cannot end alone, the last answer still arrives whole, and nothing is logged as a fault."""
    with serving(tmp_path / "log", models, *files_of(authority.issue("server"))) as server:
        context = context_of(authority)
        with secured(server, context) as peer:
            peer.sendall(request_bytes("GET", "/v2", None, [("Connection", "close")]))
            answer = read_response(peer)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert peer.recv(1) == b""
        with secured(server, context) as peer:
            peer.sendall(b"nonsense\r\n\r\n")
            assert read_response(peer).status == 400
            assert peer.recv(1) == b""
        with secured(server, context) as peer:
            peer.sendall(request_bytes("GET", "/v2", None, ()))
            assert read_response(peer).status == 200
            peer.unwrap()
        with secured(server, context) as idle:
            idle.sendall(request_bytes("GET", "/v2", None, ()))
            assert read_response(idle).status == 200
            assert server.stop() == 0
        assert "Traceback" not in server.log
        assert "eof_received" not in server.log


@pytest.mark.slow
def test_clients_have_to_show_a_certificate(tmp_path: Path, models: Path, authority: Authority) -> None:
    known, unknown = authority.issue("client"), new_authority(tmp_path, "stranger").issue("unknown")
    options = (*files_of(authority.issue("server")), "--http-root-cert", authority.root)
    with serving(tmp_path / "log", models, *options) as server:
        assert ask(server, context_of(authority, known), "/v2").status == 200
        for other in (None, unknown):
            with pytest.raises((OSError, ConnectionError)):
                ask(server, context_of(authority, other), "/v2")
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_grpc_on_the_encrypted_http_port(tmp_path: Path, models: Path, authority: Authority) -> None:
    options = (*files_of(authority.issue("server")), "--http-port-serves-grpc=true", "--allow-grpc=false")
    with serving(tmp_path / "log", models, *options) as server:
        assert ask(server, context_of(authority, None, "h2", "http/1.1"), "/v2", ("a", "b")).status == 200
        with calling(f"localhost:{server.http}", ssl=True, root_certificates=str(authority.root)) as client:
            infer_grpc(client)
            infer_grpc(client, count=3_000_000)
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_files_that_cannot_be_used(tmp_path: Path, models: Path, authority: Authority) -> None:
    one, two = authority.issue("one"), authority.issue("two")
    files = ("--http-server-cert", one.cert, "--http-server-key", two.key)
    code, log = run_to_end(tmp_path / "log", models, *files)
    assert code == 1
    assert f"--http-server-key: the key in {two.key} is not that of the first certificate in {one.cert}" in log
    assert "Traceback" not in log
