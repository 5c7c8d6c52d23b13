"""TLS on the gRPC port of a whole server, with real clients and real certificates."""

from __future__ import annotations

import contextlib
import ssl
import time
from pathlib import Path

import pytest

from naiad.testing import run_to_end, serving
from support.certificates import Authority, new_authority
from support.grpc_peers import calling, infer, is_refused


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_tls(tmp_path: Path, models: Path, authority: Authority, transport: str) -> None:
    identity_ = authority.issue("server")
    files = ("--grpc-server-cert", identity_.cert, "--grpc-server-key", identity_.key)
    with serving(tmp_path / "log", models, "--grpc-use-ssl=true", *files, "--grpc-transport", transport) as server:
        url = f"localhost:{server.grpc}"
        with calling(url, ssl=True, root_certificates=str(authority.root)) as client:
            infer(client)
            infer(client, count=3_000_000)
            infer(client, count=1000, compression_algorithm="gzip")
        with calling(url) as plain:
            assert is_refused(plain)
        stranger = new_authority(tmp_path, "stranger")
        with calling(url, ssl=True, root_certificates=str(stranger.root)) as distrusting:
            assert is_refused(distrusting)
        assert server.get("/v2/health/ready").status == 200
        assert "Traceback" not in server.log


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_mutual_tls(tmp_path: Path, models: Path, authority: Authority, transport: str) -> None:
    own, known = authority.issue("server"), authority.issue("client")
    unknown = new_authority(tmp_path, "stranger").issue("unknown")
    files = ("--grpc-server-cert", own.cert, "--grpc-server-key", own.key, "--grpc-root-cert", authority.root)
    options = ("--grpc-use-ssl-mutual=true", *files, "--grpc-transport", transport)
    with serving(tmp_path / "log", models, *options) as server:
        url, root = f"localhost:{server.grpc}", str(authority.root)
        with calling(
            url, ssl=True, root_certificates=root, private_key=str(known.key), certificate_chain=str(known.cert)
        ) as client:
            infer(client)
        with calling(url, ssl=True, root_certificates=root) as nobody:
            assert is_refused(nobody)
        with calling(
            url, ssl=True, root_certificates=root, private_key=str(unknown.key), certificate_chain=str(unknown.cert)
        ) as stranger:
            assert is_refused(stranger)
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_peers_stuck_in_the_handshake_hurt_nobody(tmp_path: Path, models: Path, authority: Authority) -> None:
    own = authority.issue("server")
    files = ("--grpc-server-cert", own.cert, "--grpc-server-key", own.key)
    with serving(tmp_path / "log", models, "--grpc-use-ssl=true", *files) as server, contextlib.ExitStack() as closing:
        for _ in range(600):
            closing.enter_context(server.connect(server.grpc))
        context = ssl.create_default_context(cafile=str(authority.root))
        context.set_alpn_protocols(["h2"])
        plain = closing.enter_context(server.connect(server.grpc))
        secure = closing.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
        assert secure.selected_alpn_protocol() == "h2"
        secure.close()
        assert server.get("/v2/health/ready").status == 200
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_tls_files_that_cannot_be_used(tmp_path: Path, models: Path, authority: Authority, transport: str) -> None:
    one, two = authority.issue("one"), authority.issue("two")
    files = ("--grpc-server-cert", one.cert, "--grpc-server-key", two.key)
    code, log = run_to_end(tmp_path / "log", models, "--grpc-use-ssl=1", *files, "--grpc-transport", transport)
    assert code == 1
    assert f"the key in {two.key} is not that of the first certificate in {one.cert}" in log
    assert "Traceback" not in log
