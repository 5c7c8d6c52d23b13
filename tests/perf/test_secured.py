"""Servers with TLS and with keys: the options that reach them, over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.perf.target.protocol import TargetError
from naiad.testing import RunningServer, serving
from support.certificates import Authority, as_der, new_authority
from support.perf_peer import peer
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


# HTTPS

HTTPS = ("-m", "known", "--request-count", 10)


@pytest.mark.parametrize("form", ["PEM", "pkcs8", "sec1"])
def test_a_client_with_a_certificate_over_https(authority: Authority, form: str) -> None:
    own, client = authority.issue("server"), authority.issue("client")
    words: tuple[object, ...] = ("--ssl-https-ca-certificates-file", authority.root)
    if form != "PEM":
        client = as_der(client, form)
        words += ("--ssl-https-client-certificate-type", "DER", "--ssl-https-private-key-type", "DER")
    words += ("--ssl-https-client-certificate-file", client.cert, "--ssl-https-private-key-file", client.key)
    with peer(cert=own.cert, key=own.key, ca=authority.root) as address:
        assert measure_level(*HTTPS, "-u", f"https://{address}", *words).merged.requests == 10
        with pytest.raises(TargetError):
            measure(*HTTPS, "-u", f"https://{address}", *words[:2])


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            ("--ssl-https-client-certificate-type", "DER"),
            "'.*client.pem' is not in the form DER: it begins with b'-----BEGIN",
        ),
        (("--ssl-https-private-key-type", "DER"), "'.*client.key' is not in the form DER"),
        ((), "cannot use the certificate '.*client.pem' with the key '.*root.pem'"),
    ],
)
def test_wrong_files_of_a_client(authority: Authority, words: tuple[str, ...], match: str) -> None:
    own = authority.issue("client")
    key = own.key if words else authority.root
    given = ("--ssl-https-client-certificate-file", own.cert, "--ssl-https-private-key-file", key)
    with pytest.raises(TargetError, match=match):
        measure(*HTTPS, "-u", "https://127.0.0.1:1", *given, *words)


def test_what_is_not_verified(authority: Authority) -> None:
    """The certificate of the authority itself names no host."""
    with peer(cert=authority.own.cert, key=authority.own.key) as address:
        words = (*HTTPS, "-u", f"https://{address}")
        roots = ("--ssl-https-ca-certificates-file", authority.root)
        for more, match in (((), "self-signed certificate"), (roots, "IP address mismatch")):
            with pytest.raises(TargetError, match=f"the server's certificate is not trusted: .*{match}"):
                measure(*words, *more)
        assert measure_level(*words, *roots, "--ssl-https-verify-host", 0).merged.requests == 10
        assert measure_level(*words, "--ssl-https-verify-peer", 0).merged.requests == 10
