"""The gRPC options of a whole server, each seen from a client's side: where it listens, its limits, its end."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h2.events
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import run_to_end, server_environment, serving, start_server, wait_until
from support.grpc_peers import CALL_S, INFER, LIVE, Http2Peer, calling, infer, infer_message
from support.served_models import identity, numbers, write_model
from support.served_transports import TRANSPORTS


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "same", identity("TYPE_FP32", "-1"))
    write_model(folder, "slow", identity("TYPE_FP32", "-1", delay_ms=500))
    return folder


# Where it listens.


@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_the_port_is_logged_and_serves(tmp_path: Path, models: Path, transport: str) -> None:
    with serving(tmp_path / "log", models, "--grpc-transport", transport) as server:
        places = [
            server.log.index(f"Started {name} at 127.0.0.1:")
            for name in ("GRPCInferenceService", "HTTPService", "Metrics Service")
        ]
        assert places == sorted(places)
        with calling(server.grpc_url) as client:
            assert client.is_server_ready(client_timeout=CALL_S)
            infer(client)
            infer(client, count=1_000_000)
        assert server.infer("same", floats(1.5)).json()["outputs"][0]["data"] == [1.5]


def floats(*values: float) -> dict[str, object]:
    given = {"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}
    return {"inputs": [given]}


def test_grpc_can_be_off(tmp_path: Path, models: Path) -> None:
    env = server_environment() | {"PYTHONPROFILEIMPORTTIME": "1"}
    with serving(tmp_path / "log", models, "--allow-grpc=false", env=env) as server:
        assert server.get("/v2/health/ready").status == 200
        assert server.grpc == 0
        imported = {line.rpartition("|")[2].strip() for line in server.log.splitlines() if "import time:" in line}
        assert "naiad.frontends.http.server.listener" in imported
        assert [
            m for m in imported if m.startswith(("naiad.frontends.grpc", "naiad.wire.http2", "hpack", "grpc"))
        ] == []


@pytest.mark.slow
def test_grpc_on_ipv6(tmp_path: Path, models: Path) -> None:
    with serving(tmp_path / "log", models, "--grpc-address", "ipv6:[::1]") as server:
        assert "Started GRPCInferenceService at [::1]:" in server.log
        with calling(f"[::1]:{server.grpc}") as client:
            infer(client)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_two_servers_may_share_a_port(tmp_path: Path, models: Path, transport: str) -> None:
    options = ("--reuse-grpc-port=true", "--grpc-transport", transport)
    with serving(tmp_path / "one", models, *options) as one:
        with serving(tmp_path / "two", models, *options, "--grpc-port", one.grpc) as two:
            assert one.grpc == two.grpc
        with calling(one.grpc_url) as client:
            infer(client)
        code, log = run_to_end(tmp_path / "three", models, "--grpc-port", one.grpc, "--grpc-transport", transport)
        assert code == 1
        text = "cannot listen on 127.0.0.1:{}" if transport == "grpcio" else "Socket '127.0.0.1:{}' already in use"
        assert text.format(one.grpc) in log
        assert "--grpc-port" in log


# The HTTP port.


def test_the_http_port_serves_grpc_when_asked(tmp_path: Path, models: Path) -> None:
    with (
        serving(tmp_path / "log", models, "--http-port-serves-grpc=true") as server,
        calling(server.url) as client,
        calling(server.grpc_url) as other,
    ):
        infer(client)
        infer(client, count=500_000)
        infer(other)
        assert server.infer("same", floats(2)).json()["outputs"][0]["data"] == [2]
        assert server.get("/v2/health/ready").status == 200
        infer(client)


@pytest.mark.slow
def test_the_http_port_may_be_the_only_one(tmp_path: Path, models: Path) -> None:
    with serving(tmp_path / "log", models, "--http-port-serves-grpc=true", "--allow-grpc=false") as server:
        assert "GRPCInferenceService" not in server.log
        with calling(server.url) as client:
            infer(client)
            with ThreadPoolExecutor(3) as pool:
                asked = [pool.submit(infer, client, "slow") for _ in range(3)]
                server.wait_pending("slow", 2)
                server.signal()
                for one in asked:
                    one.result(CALL_S)
        assert server.wait_exit() == 0


@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_the_http_port_does_not_serve_grpc_unasked(tmp_path: Path, models: Path, transport: str) -> None:
    with serving(tmp_path / "log", models, "--grpc-transport", transport) as server, server.connect() as peer:
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 505 ")


def test_the_http_port_serves_grpc_beside_grpcio(tmp_path: Path, models: Path) -> None:
    options = ("--http-port-serves-grpc=true", "--grpc-transport=grpcio")
    with serving(tmp_path / "log", models, *options) as server:
        for url in (server.url, server.grpc_url):
            with calling(url) as client:
                infer(client)


# Limits.


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_messages_over_the_limit(tmp_path: Path, models: Path, transport: str) -> None:
    options = ("--grpc-max-input-size", "5000", "--grpc-transport", transport)
    with serving(tmp_path / "log", models, *options) as server, calling(server.grpc_url) as client:
        infer(client, count=1000)
        with pytest.raises(InferenceServerException) as caught:
            infer(client, count=2000)
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        infer(client, count=1000)


@pytest.mark.slow
def test_connections_over_the_limit(tmp_path: Path, models: Path) -> None:
    with (
        serving(tmp_path / "log", models, "--grpc-max-connections=2", "--http-port-serves-grpc=1") as server,
        Http2Peer(server.grpc) as one,
        Http2Peer(server.http) as two,
    ):
        for peer in (one, two):
            peer.call(LIVE)
            peer.wait(h2.events.StreamEnded)
        assert not answers(server.grpc)
        assert not answers(server.http)
        two.socket.close()
        wait_until(lambda: answers(server.grpc), 10, "there is room again")
        one.call(LIVE)


def answers(port: int) -> bool:
    """Whether a new connection is served."""
    with Http2Peer(port) as peer:
        try:
            peer.call(LIVE)
            peer.wait_end(0.5)
        except TimeoutError:
            return any(isinstance(e, h2.events.StreamEnded) for e in peer.seen)
        except OSError:
            return False
    return False


# Compression.


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("level", ["none", "low", "medium", "high"])
def test_answers_to_inference_requests_are_compressed(tmp_path: Path, models: Path, transport: str, level: str) -> None:
    options = ("--grpc-infer-response-compression-level", level, "--grpc-transport", transport)
    with serving(tmp_path / "log", models, *options) as server:
        with Http2Peer(server.grpc) as peer:
            stream = peer.call(INFER, infer_message(1000), ("grpc-accept-encoding", "identity, deflate, gzip"))
            headers = dict(getattr(peer.wait(h2.events.ResponseReceived), "headers"))  # noqa: B009
            assert headers.get("grpc-encoding", "identity") in (
                ("identity",) if level == "none" else ("gzip", "deflate")
            )
            peer.wait(h2.events.StreamEnded)
            size = sum(len(e.data) for e in peer.seen if isinstance(e, h2.events.DataReceived))
            assert stream == 1
            assert (size > 4000) is (level == "none")
        with calling(server.grpc_url) as client:
            infer(client, count=1000)
            infer(client, count=1000, compression_algorithm="gzip")


# Its end.


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_calls_in_flight_are_answered_at_the_end(tmp_path: Path, models: Path, transport: str) -> None:
    with serving(tmp_path / "log", models, "--grpc-transport", transport) as server, calling(server.grpc_url) as client:
        infer(client)
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(infer, client, "slow") for _ in range(3)]
            server.wait_pending("slow", 2)
            server.signal()
            for one in asked:
                one.result(CALL_S)
        assert server.wait_exit(10) == 0
        assert "Traceback" not in server.log


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_idle_clients_do_not_hold_the_end_up(tmp_path: Path, models: Path, transport: str) -> None:
    with (
        serving(tmp_path / "log", models, "--grpc-transport", transport) as server,
        calling(server.grpc_url) as client,
        Http2Peer(server.grpc) as peer,
        server.connect(server.grpc),
    ):
        infer(client)
        peer.call(LIVE)
        peer.wait(h2.events.StreamEnded)
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 8


def test_without_models_it_answers_while_others_load(tmp_path: Path) -> None:
    late = 'parameters { key: "creation_delay_sec" value { string_value: "30" } }'
    write_model(tmp_path / "models", "late", identity(extra=late))
    server = start_server(tmp_path / "log", tmp_path / "models")
    try:
        server.wait_listening()
        with calling(server.grpc_url) as client:
            assert client.is_server_live(client_timeout=CALL_S)
            assert not client.is_server_ready(client_timeout=CALL_S)
            assert not client.is_model_ready("late", client_timeout=CALL_S)
            assert server.infer("late", numbers([1])).status in (404, 503)
            server.signal()
            assert server.wait_exit(10) == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()
