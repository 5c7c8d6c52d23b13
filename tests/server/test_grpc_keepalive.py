"""The options that watch gRPC connections: pings in both directions and the connections' age."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import h2.events
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import serving, wait_until
from support.grpc_peers import LIVE, Http2Peer, calling, count, infer
from support.served_models import identity, write_model


@pytest.mark.slow
def test_quiet_clients_are_pinged(tmp_path: Path, models: Path) -> None:
    options = ("--grpc-keepalive-time=1000", "--grpc-keepalive-timeout=1000")
    with serving(tmp_path / "log", models, *options, "--grpc-keepalive-permit-without-calls=1") as server:
        with Http2Peer(server.grpc) as peer:
            peer.wait(h2.events.PingReceived, 10)
            assert not peer.ended
        with Http2Peer(server.grpc) as silent:
            silent.wait(h2.events.SettingsAcknowledged)
            begun = time.monotonic()
            # From here on nothing is read that would answer a ping.
            silent.socket.settimeout(15)
            with contextlib.suppress(ConnectionResetError):
                while silent.socket.recv(65536):
                    pass
            assert time.monotonic() - begun < 10


@pytest.mark.slow
def test_clients_are_not_pinged_without_need(tmp_path: Path, models: Path) -> None:
    with serving(tmp_path / "log", models, "--grpc-keepalive-time=1000") as server, Http2Peer(server.grpc) as peer:
        peer.call(LIVE)
        peer.wait(h2.events.StreamEnded)
        with pytest.raises(TimeoutError):
            peer.wait(h2.events.PingReceived, 2.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "bears"),
    [
        ((), False),
        (("--grpc-http2-max-ping-strikes=0",), True),
        (("--grpc-http2-min-recv-ping-interval-without-data=0", "--grpc-keepalive-permit-without-calls=1"), True),
    ],
)
def test_clients_that_ping_too_often_are_sent_away(
    tmp_path: Path, models: Path, options: tuple[str, ...], bears: bool
) -> None:
    with serving(tmp_path / "log", models, *options) as server, Http2Peer(server.grpc) as peer:
        peer.call(LIVE)
        peer.wait(h2.events.StreamEnded)
        for number in range(10):
            with contextlib.suppress(OSError):
                peer.connection.ping(number.to_bytes(8, "big"))
                peer.flush()
        if bears:
            wait_until(
                lambda: peer.read() and count(peer, h2.events.PingAckReceived) == 10, 10, "all pings are answered"
            )
            assert count(peer, h2.events.ConnectionTerminated) == 0
        else:
            gone = peer.wait(h2.events.ConnectionTerminated)
            assert isinstance(gone, h2.events.ConnectionTerminated)
            assert (gone.error_code, gone.additional_data) == (11, b"too_many_pings")
            peer.wait_end()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_old_connections_are_asked_to_go(tmp_path: Path, models: Path, transport: str) -> None:
    options = ("--grpc-max-connection-age=1000", "--grpc-transport", transport)
    with serving(tmp_path / "log", models, *options) as server:
        with Http2Peer(server.grpc) as peer:
            peer.call(LIVE)
            peer.wait(h2.events.StreamEnded)
            gone = peer.wait(h2.events.ConnectionTerminated, 10)
            assert isinstance(gone, h2.events.ConnectionTerminated)
            assert gone.error_code == 0
        with calling(server.grpc_url) as client:
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                infer(client)
                time.sleep(0.02)


@pytest.mark.slow
def test_old_connections_are_dropped_after_the_grace(tmp_path: Path, models: Path) -> None:
    write_model(tmp_path / "models", "long", identity("TYPE_FP32", "-1", delay_ms=60_000))
    options = ("--grpc-max-connection-age=1000", "--grpc-max-connection-age-grace=1000", "--exit-timeout-secs=20")
    with serving(tmp_path / "log", tmp_path / "models", *options) as server, calling(server.grpc_url) as client:
        begun = time.monotonic()
        with pytest.raises(InferenceServerException) as caught:
            infer(client, "long")
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        assert time.monotonic() - begun < 30
        # Its model would go on for a minute.
        server.kill()
