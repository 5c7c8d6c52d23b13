"""TLS: the settings out of PEM files, and a listener that begins its connections with handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from naiad.errors import OptionError
from naiad.frontends.http.server.connection import HttpConnection
from naiad.frontends.http.server.state import HttpLimits, HttpService
from naiad.frontends.net import tls_accept
from naiad.frontends.net.listener import Listener
from naiad.frontends.net.tls import ssl_context
from support.certificates import Authority, Identity, new_authority
from support.event_loops import LOOPS, WAIT_S, run, until
from support.http_peer import Application


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Papers:
    """An authority with a server and a client, and a client of an authority that nobody asked for."""

    authority: Authority
    server: Identity
    client: Identity
    stranger: Identity


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    folder = tmp_path_factory.mktemp("certificates")
    authority = new_authority(folder, "authority")
    stranger = new_authority(folder, "other").issue("stranger")
    return Papers(authority, authority.issue("server"), authority.issue("client"), stranger)


def context_of(papers: Papers, mutual: bool = False) -> ssl.SSLContext:
    return ssl_context(str(papers.server.cert), str(papers.server.key), str(papers.authority.root), mutual)


def client_of(papers: Papers, identity: Identity | None = None, protocols: tuple[str, ...] = ("h2",)) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(papers.authority.root))
    context.set_alpn_protocols(protocols)
    if identity is not None:
        context.load_cert_chain(identity.cert, identity.key)
    return context


# The settings.


def refusal(cert: object, key: object, root: object = "", mutual: bool = False) -> str:
    with pytest.raises(OptionError) as caught:
        ssl_context(str(cert), str(key), str(root), mutual)
    return str(caught.value)


def test_a_file_that_is_not_named(papers: Papers) -> None:
    assert "--grpc-server-cert is missing: name the PEM file of the server's" in refusal("", papers.server.key)
    assert "--grpc-server-key is missing" in refusal(papers.server.cert, "")
    assert "--grpc-root-cert is missing" in refusal(papers.server.cert, papers.server.key, "", mutual=True)


def test_a_file_that_is_not_there(papers: Papers, tmp_path: Path) -> None:
    gone = tmp_path / "gone.pem"
    for option, text in (
        ("--grpc-server-cert", refusal(gone, papers.server.key)),
        ("--grpc-server-key", refusal(papers.server.cert, gone)),
        ("--grpc-root-cert", refusal(papers.server.cert, papers.server.key, gone, mutual=True)),
    ):
        assert text == f"{option}: cannot read {gone}: No such file or directory"
    assert "Is a directory" in refusal(tmp_path, papers.server.key)


def test_a_file_that_is_not_pem(papers: Papers, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    assert f"--grpc-server-cert: {binary} holds no certificate" in refusal(binary, papers.server.key)
    assert f"--grpc-server-key: {binary} holds no private key" in refusal(papers.server.cert, binary)
    assert f"--grpc-root-cert: {binary} holds no certificate" in refusal(
        papers.server.cert, papers.server.key, binary, mutual=True
    )


def test_files_the_wrong_way_round(papers: Papers) -> None:
    assert "--grpc-server-cert" in refusal(papers.server.key, papers.server.cert)


def test_pem_with_a_broken_inside(papers: Papers, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert f"{broken} and {papers.server.key} cannot be used" in refusal(broken, papers.server.key)
    assert f"--grpc-root-cert: {broken} cannot be used" in refusal(
        papers.server.cert, papers.server.key, broken, mutual=True
    )


def test_a_key_of_another_certificate(papers: Papers) -> None:
    text = refusal(papers.server.cert, papers.client.key)
    assert f"the key in {papers.client.key} is not that of the first certificate in {papers.server.cert}" in text


def test_an_encrypted_key(papers: Papers, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", papers.server.key, "-aes256", "-passout", "pass:secret", "-out", locked]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    assert "the key is encrypted; give one without a password" in refusal(papers.server.cert, locked)


def test_old_versions_and_renegotiation_are_off(papers: Papers) -> None:
    context = context_of(papers)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode is ssl.CERT_NONE
    assert context_of(papers, mutual=True).verify_mode is ssl.CERT_REQUIRED


# Connections. What they carry does not matter here, so it is a small HTTP application.


@contextlib.asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[Listener]:
    service = HttpService(Application(), HttpLimits())
    listener = Listener(service, lambda: HttpConnection(service), "127.0.0.1", 0, option="--grpc-port", ssl=context)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.drain(5)
        await until(lambda: listener.connection_count == 0)


async def echo(listener: Listener, client: ssl.SSLContext, body: bytes = b"secret") -> str | None:
    """Ask once; gives back the protocol that was negotiated."""
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection("127.0.0.1", listener.port, ssl=client, server_hostname="localhost"), WAIT_S
    )
    try:
        writer.write(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert await asyncio.wait_for(reader.readexactly(len(body)), WAIT_S) == body
        agreed: str | None = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        return agreed
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("size", [6, 3_000_000])
def test_bytes_go_both_ways(loop: str, papers: Papers, size: int) -> None:
    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            assert await echo(listener, client_of(papers), b"x" * size) == "h2"
            await until(lambda: listener.connection_count == 0)

    run(test(), loop)


def test_full_buffers_of_small_chunks(loop: str, papers: Papers) -> None:
    """Such a connection pauses, for others to have a turn."""
    size = 30_000

    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", listener.port, ssl=client_of(papers), server_hostname="localhost"
            )
            head = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            for _ in range(2):
                writer.write(head + b"20\r\n%b\r\n" % (b"x" * 32) * size + b"0\r\n\r\n")
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
                assert await asyncio.wait_for(reader.readexactly(32 * size), WAIT_S) == b"x" * 32 * size
            writer.close()
            await until(lambda: listener.connection_count == 0)

    run(test(), loop)


def test_only_http2_is_negotiated(loop: str, papers: Papers) -> None:
    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            assert await echo(listener, client_of(papers, protocols=("http/1.1", "h2"))) == "h2"
            assert await echo(listener, client_of(papers, protocols=("http/1.1",))) is None

    run(test(), loop)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_mutual_tls_takes_only_clients_that_the_root_vouches_for(
    loop: str, papers: Papers, version: ssl.TLSVersion
) -> None:
    async def test() -> None:
        async with listening(context_of(papers, mutual=True)) as listener:
            good = client_of(papers, papers.client)
            for refused in (client_of(papers), client_of(papers, papers.stranger)):
                refused.minimum_version = refused.maximum_version = version
                with pytest.raises((OSError, asyncio.IncompleteReadError)):
                    await echo(listener, refused)
            assert await echo(listener, good) == "h2"
            await until(lambda: listener.connection_count == 0)

    run(test(), loop)


def test_peers_that_do_not_speak_tls_are_dropped(loop: str, papers: Papers) -> None:
    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100)):
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(said)
                if said:
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(reader.read(), WAIT_S)
                writer.close()
            assert listener.connection_count == 0
            assert await echo(listener, client_of(papers)) == "h2"

    run(test(), loop)


def test_silent_handshakes_end_after_their_time(loop: str, papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_accept, "HANDSHAKE_S", 0.2)

    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            writer.close()

    run(test(), loop)


def test_silent_handshakes_make_way_for_new_ones(loop: str, papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_accept, "MAX_HANDSHAKES", 8)

    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(24)]
            assert await echo(listener, client_of(papers)) == "h2"
            for reader, _ in silent[:16]:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            for _, writer in silent:
                writer.close()

    run(test(), loop)


def test_handshakes_under_way_do_not_hold_the_end_up(loop: str, papers: Papers) -> None:
    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
            await asyncio.sleep(0.02)
            assert await listener.drain(5)
            for reader, writer in silent:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
                writer.close()

    run(test(), loop)


def test_a_listener_that_stopped_accepts_no_more(loop: str, papers: Papers) -> None:
    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            assert await echo(listener, client_of(papers)) == "h2"
            listener.stop_accepting()
            await asyncio.sleep(0.01)
            with pytest.raises(OSError, match=r"refused|Connect call failed"):
                await asyncio.open_connection("127.0.0.1", listener.port)
            with socket.create_server(("127.0.0.1", listener.port)):
                pass  # the port is free again

    run(test(), loop)


@pytest.mark.parametrize("sent", [b"GET /close HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"nonsense\r\n\r\n"])
def test_a_connection_that_is_over_is_closed_with_its_last_answer(loop: str, papers: Papers, sent: bytes) -> None:
    """TLS cannot end one direction alone, as plain connections do."""

    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", listener.port, ssl=client_of(papers), server_hostname="localhost"
            )
            writer.write(sent)
            answer = await asyncio.wait_for(reader.read(), WAIT_S)
            assert b"\r\nConnection: close\r\n" in answer
            writer.close()

    run(test(), loop)


def test_a_peer_that_ends_in_the_middle_of_a_request(
    loop: str, papers: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with listening(context_of(papers)) as listener:
            for said in (b"GET", b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\nx"):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", listener.port, ssl=client_of(papers), server_hostname="localhost"
                )
                writer.write(said)
                await writer.drain()
                await until(lambda: listener.connection_count == 1)
                writer.close()
                await until(lambda: listener.connection_count == 0)

    run(test(), loop)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
