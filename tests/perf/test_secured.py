"""Servers with TLS and with keys: the options that reach them, over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.perf.target.protocol import TargetError
from naiad.testing import RunningServer, serving
from support.certificates import Authority, new_authority
from support.perf_runs import measure, measure_level
from support.served_models import identity, write_model


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"), "root")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RunningServer]:
    """A server whose gRPC wants a client's certificate, and whose HTTP wants a header for inference."""
    folder = tmp_path_factory.mktemp("secured")
    own = authority.issue("server")
    write_model(folder / "models", "id", identity("TYPE_FP32", "16", max_batch_size=8))
    words = ("--grpc-use-ssl-mutual", "1", "--grpc-server-cert", own.cert, "--grpc-server-key", own.key)
    keys = ("--http-restricted-api", "inference:x-key=secret")
    files = ("--grpc-root-cert", authority.root, "--model-repository", folder / "models")
    with serving(folder / "log", *words, *keys, *files) as running:
        yield running


def test_a_client_with_a_certificate(server: RunningServer, authority: Authority) -> None:
    own = authority.issue("client")
    words = (
        *("-m", "id", "-i", "grpc", "-u", server.grpc_url, "--ssl-grpc-use-ssl", "--request-count", 50),
        *("--ssl-grpc-root-certifications-file", authority.root),
        *("--ssl-grpc-certificate-chain-file", own.cert, "--ssl-grpc-private-key-file", own.key),
    )
    level = measure_level(*words, "--concurrency-range", 20)
    assert (level.merged.requests, dict(level.merged.errors)) == (50, {})


def test_a_client_without_a_certificate(server: RunningServer, authority: Authority) -> None:
    roots = ("--ssl-grpc-root-certifications-file", authority.root)
    with pytest.raises(TargetError):
        measure("-m", "id", "-i", "grpc", "-u", server.grpc_url, "--ssl-grpc-use-ssl", *roots)


def test_a_client_without_tls(server: RunningServer) -> None:
    with pytest.raises(TargetError):
        measure("-m", "id", "-i", "grpc", "-u", server.grpc_url)


def test_files_that_cannot_be_read(server: RunningServer, tmp_path: Path) -> None:
    broken = tmp_path / "roots.pem"
    broken.write_text("no certificate")
    roots = ("--ssl-grpc-root-certifications-file", broken)
    with pytest.raises(TargetError, match=r"cannot read the certificates in '.*roots\.pem'"):
        measure("-m", "id", "-i", "grpc", "-u", server.grpc_url, "--ssl-grpc-use-ssl", *roots)


def test_headers_are_sent(server: RunningServer) -> None:
    words = ("-m", "id", "-u", server.url, "--request-count", 20)
    assert measure_level(*words, "-H", "x-key: secret").merged.requests == 20
    with pytest.raises(TargetError, match="HTTP 403"):
        measure(*words)
