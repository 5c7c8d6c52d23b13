"""API keys and TLS files of a whole server that change while it runs, over both protocols."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import RESPONSE_S, RunningServer, read_response, request_bytes, serving, wait_until
from server.test_access import bearer
from support.api_keys import hashed
from support.certificates import Authority, Identity
from support.grpc_peers import calling
from support.replaced_files import put
from support.served_transports import TRANSPORTS


def read_again(server: RunningServer, what: str) -> None:
    """Ask for it, and wait until it has happened."""
    line = f"{what} were read again"
    before = server.log.count(line)
    server.signal(signal.SIGHUP)
    wait_until(lambda: server.log.count(line) > before, 10, line)


class OpenConnection:
    """An HTTP connection that stays open, with the same head for every request."""

    def __init__(self, peer: socket.socket, key: str) -> None:
        self._peer = peer
        self._request = request_bytes("GET", "/v2", None, [bearer(key)])

    def status(self) -> int:
        self._peer.sendall(self._request)
        return read_response(self._peer).status


def grpc_status(client: tritonclient.grpc.InferenceServerClient, key: str) -> str:
    name, value = bearer(key)
    try:
        client.get_server_metadata(headers={name.lower(): value})
    except InferenceServerException as error:
        return error.status()
    return "OK"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_keys_come_and_go_on_open_connections(tmp_path: Path, models: Path, transport: str) -> None:
    keys = tmp_path / "keys"
    put(keys, f"old infer {hashed('old')}\nstays infer {hashed('stays')} rate=0.001 burst=2\n")
    options = ("--api-key-file", keys, "--grpc-transport", transport)
    with (
        serving(tmp_path / "log", models, *options) as server,
        server.connect() as one,
        server.connect() as two,
        server.connect() as three,
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
    ):
        old, new, stays = (OpenConnection(peer, key) for peer, key in ((one, "old"), (two, "new"), (three, "stays")))
        for _ in range(3):
            assert (old.status(), new.status()) == (200, 401)
            assert grpc_status(client, "old") == "OK"
            assert grpc_status(client, "new") == "StatusCode.UNAUTHENTICATED"
        assert stays.status() == 200
        put(keys, f"new infer {hashed('new')}\nstays infer {hashed('stays')} rate=0.001 burst=2\n")
        read_again(server, "the API keys")
        for _ in range(3):
            assert (old.status(), new.status()) == (401, 200)
            assert grpc_status(client, "old") == "StatusCode.UNAUTHENTICATED"
            assert grpc_status(client, "new") == "OK"
        # What it has used of its limit is not forgotten.
        assert [stays.status() for _ in range(2)] == [200, 429]
        put(keys, "nonsense\n")
        server.signal(signal.SIGHUP)
        server.wait_for("the API keys: those from before stay in use")
        assert (old.status(), new.status()) == (401, 200)
        assert "nonsense" not in server.log


def serial(url: str, authority: Authority) -> int:
    """The serial number of the certificate that a port shows now, to a client that offers both protocols."""
    host, _, port = url.partition(":")
    context = ssl.create_default_context(cafile=str(authority.root))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((host, int(port)), timeout=RESPONSE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        found = secure.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def install(identity_: Identity, folder: Path) -> tuple[Path, Path]:
    """Put a certificate and its key where the server reads them."""
    target = folder / "server.pem", folder / "server.key"
    for source, place in zip((identity_.cert, identity_.key), target, strict=True):
        shutil.copy(source, place.with_suffix(".new"))
        os.replace(place.with_suffix(".new"), place)
    return target


@contextlib.contextmanager
def secured(server: RunningServer, authority: Authority) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(authority.root))
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        yield secure


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_new_connections_get_the_new_certificate(
    tmp_path: Path, models: Path, authority: Authority, transport: str
) -> None:
    cert, key = install(authority.issue("first"), tmp_path)
    files = [
        f"--{port}-server-{what}={path}" for port in ("http", "grpc") for what, path in (("cert", cert), ("key", key))
    ]
    options = (*files, "--grpc-use-ssl=true", "--grpc-transport", transport)
    with (
        serving(tmp_path / "log", models, *options) as server,
        secured(server, authority) as kept,
        calling(f"localhost:{server.grpc}", ssl=True, root_certificates=str(authority.root)) as client,
    ):
        assert client.is_server_live()
        ports = (server.url, server.grpc_url)
        before = [serial(url, authority) for url in ports]
        assert before[0] == before[1]
        install(authority.issue("second"), tmp_path)
        read_again(server, "the TLS files of the gRPC port")
        server.wait_for("the TLS files of the HTTP port were read again")
        after = [serial(url, authority) for url in ports]
        assert after[0] == after[1] != before[0]
        # A key that does not fit: everything stays as it was.
        shutil.copy(authority.issue("third").key, key)
        server.signal(signal.SIGHUP)
        for port in ("HTTP", "gRPC"):
            server.wait_for(f"the TLS files of the {port} port: those from before stay in use")
        assert [serial(url, authority) for url in ports] == after
        kept.sendall(request_bytes("GET", "/v2/health/live", None))
        assert read_response(kept).status == 200
        assert client.is_server_live()
