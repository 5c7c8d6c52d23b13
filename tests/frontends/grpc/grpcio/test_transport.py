"""What the grpcio transport has of its own: its port, TLS files, settings, and that grpcio may be missing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from naiad.errors import OptionError
from naiad.frontends.grpc.grpcio.transport import GrpcioTransport, TlsFiles, channel_options
from naiad.frontends.grpc.rpc.call import Body, RpcCall, Unary
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from support.certificates import Identity, new_authority
from support.event_loops import WAIT_S, run
from support.grpc_transports import carried


def echo(call: RpcCall, message: Body) -> None:
    call.reply((message,), len(message))


def test_a_port_that_is_in_use() -> None:
    async def test() -> None:
        async with carried("grpcio", {}) as first:
            second = GrpcioTransport({}, "127.0.0.1", first.port, option="--this-port")
            with pytest.raises(OptionError, match=rf"cannot listen on 127\.0\.0\.1:{first.port}: .*--this-port"):
                await second.start()
            assert await second.drain(WAIT_S)
            second.abort()

    run(test())


def test_two_servers_may_share_a_port_when_told_so() -> None:
    async def test() -> None:
        first = GrpcioTransport({}, "127.0.0.1", 0, reuse_port=True)
        await first.start()
        second = GrpcioTransport({}, "127.0.0.1", first.port, reuse_port=True)
        await second.start()
        assert await first.drain(WAIT_S)
        assert await second.drain(WAIT_S)

    run(test())


@dataclass(frozen=True)
class Keys:
    """One authority, the server it vouches for and a client; and a client of somebody else."""

    root: bytes
    server: Identity
    client: Identity
    stranger: Identity
    root_file: Path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("certificates")
    ours, theirs = new_authority(folder, "ours"), new_authority(folder, "theirs")
    return Keys(ours.root.read_bytes(), ours.issue("server"), ours.issue("client"), theirs.issue("stranger"), ours.root)


async def ask_with_tls(transport: GrpcioTransport, keys: Keys, client: Identity | None) -> str:
    """The code of a call from a client with a certificate, or without one."""
    own = (None, None) if client is None else (client.key.read_bytes(), client.cert.read_bytes())
    credentials = grpc.ssl_channel_credentials(keys.root, *own)
    async with grpc.aio.secure_channel(transport.address, credentials) as channel:
        call = channel.unary_unary("/t/echo")(b"secret", timeout=WAIT_S)
        return str((await call.code()).name)


@pytest.mark.parametrize("mutual", [False, True])
def test_tls(keys: Keys, mutual: bool) -> None:
    async def test() -> None:
        tls = TlsFiles(str(keys.server.cert), str(keys.server.key), str(keys.root_file) if mutual else "")
        transport = GrpcioTransport({"/t/echo": Unary(echo)}, "127.0.0.1", 0, tls=tls)
        await transport.start()
        try:
            assert await ask_with_tls(transport, keys, keys.client) == "OK"
            for other in (keys.stranger, None):
                assert await ask_with_tls(transport, keys, other) == ("UNAVAILABLE" if mutual else "OK")
        finally:
            assert await transport.drain(WAIT_S)

    run(test())


@pytest.mark.parametrize("missing", ["cert", "key", "root"])
def test_tls_files_that_are_not_there(keys: Keys, missing: str) -> None:
    async def test() -> None:
        given = {"cert": str(keys.server.cert), "key": str(keys.server.key), "root": str(keys.root_file)}
        transport = GrpcioTransport({}, "127.0.0.1", 0, tls=TlsFiles(**{**given, missing: "/no/such.pem"}))
        with pytest.raises(OptionError, match=r"cannot read /no/such\.pem"):
            await transport.start()

    run(test())


def test_without_grpcio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)

    async def test() -> None:
        with pytest.raises(OptionError, match=r"pip install 'naiad\[grpcio\]'"):
            await GrpcioTransport({}, "127.0.0.1", 0).start()

    run(test())


def test_limits_become_channel_arguments() -> None:
    limits = GrpcLimits(
        max_message_bytes=1,
        max_streams=2,
        keepalive_time_ms=3,
        keepalive_timeout_ms=4,
        keepalive_permit_without_calls=True,
        max_pings_without_data=5,
        min_ping_interval_ms=6,
        max_ping_strikes=7,
        max_connection_age_ms=8,
        max_connection_age_grace_ms=9,
        compression_level="high",
    )
    assert dict(channel_options(limits, reuse_port=True)) == {
        "grpc.so_reuseport": 1,
        "grpc.max_receive_message_length": 1,
        "grpc.max_send_message_length": -1,
        "grpc.max_concurrent_streams": 2,
        "grpc.keepalive_time_ms": 3,
        "grpc.keepalive_timeout_ms": 4,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 5,
        "grpc.http2.min_ping_interval_without_data_ms": 6,
        "grpc.http2.max_ping_strikes": 7,
        "grpc.max_connection_age_ms": 8,
        "grpc.max_connection_age_grace_ms": 9,
        "grpc.default_compression_level": 3,
    }
    unset = dict(channel_options(GrpcLimits(), reuse_port=False))
    assert not {n for n in unset if "connection_age" in n or "compression" in n}
    assert unset["grpc.so_reuseport"] == 0
