"""Restricted features and API keys of a whole server, over HTTP and both transports of gRPC."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, read_response, run_to_end, server_environment, serving
from support.api_keys import hashed
from support.grpc_peers import CALL_S, calling
from support.grpc_peers import infer as infer_grpc
from support.served_transports import TRANSPORTS

PREFIX = "triton-grpc-protocol-"
BODY = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


@contextlib.contextmanager
def refused(code: str, text: str) -> Iterator[None]:
    """The call inside ends with a status code and a text."""
    with pytest.raises(InferenceServerException) as raised:
        yield
    assert raised.value.status() == f"StatusCode.{code}"
    assert text in raised.value.message()


@pytest.fixture(scope="module", params=TRANSPORTS)
def restricted(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory):
    options = (
        "--http-restricted-api=model-repository,statistics:Admin-Key=s3cret",
        "--http-restricted-api=inference:infer-key=open sesame",
        "--grpc-restricted-protocol=model-repository,health:admin-key=s3cret",
        "--grpc-restricted-protocol=inference:infer-key=x",
        *("--log-verbose", 1, "--grpc-transport", request.param),
    )
    with serving(tmp_path_factory.mktemp("log") / "log", models, *options) as running:
        yield running


class TestRestricted:
    """Features that ask for a header."""

    @pytest.mark.parametrize("headers", [[], [("admin-key", "wrong")], [("admin-key", "")], [("infer-key", "s3cret")]])
    def test_http_without_the_header(self, restricted: RunningServer, headers: list[tuple[str, str]]) -> None:
        for method, path in (
            ("POST", "/v2/repository/index"),
            ("GET", "/v2/models/stats"),
            ("POST", "/v2/models/same/stats"),
        ):
            for _ in range(3):
                answer = restricted.request(method, path, None if method == "GET" else b"", headers)
                assert (answer.status, answer.reason, answer.type) == (403, "Forbidden", "text/plain")
                assert answer.error == "This API is restricted, expecting header 'Admin-Key'"

    def test_http_with_the_header(self, restricted: RunningServer) -> None:
        key = [("ADMIN-key", "s3cret")]
        assert restricted.request("POST", "/v2/repository/index", b"", key).status == 200
        assert restricted.request("GET", "/v2/models/stats", None, key).status == 200
        assert restricted.request("POST", "/v2/models/stats", b"", key).status == 405
        assert restricted.post("/v2/models/same/infer", BODY).status == 403
        with contextlib.closing(triton_http.InferenceServerClient(restricted.url)) as client:
            given = triton_http.InferInput("INPUT0", [3], "FP32")
            given.set_data_from_numpy(np.arange(3, dtype=np.float32))
            for _ in range(3):
                got = client.infer("same", [given], headers={"infer-key": "open sesame"})
                assert list(got.as_numpy("OUTPUT0")) == [0, 1, 2]

    def test_http_says_so_before_it_looks_at_the_length(self, restricted: RunningServer) -> None:
        for path in ("/v2/models/same/infer", "/v2/repository/index"):
            with restricted.connect() as connection:
                connection.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
                assert read_response(connection).status == 403

    def test_http_serves_the_rest(self, restricted: RunningServer) -> None:
        for path in ("/v2", "/v2/health/ready", "/v2/models/same", "/v2/models/same/config"):
            assert restricted.get(path).status == 200
        assert restricted.get("/v3").status == 404

    def test_grpc(self, restricted: RunningServer) -> None:
        admin, infer = {PREFIX + "admin-key": "s3cret"}, {PREFIX + "infer-key": "x"}
        text = f"This protocol is restricted, expecting header '{PREFIX}"
        with calling(restricted.grpc_url) as client:
            for headers in ({}, {PREFIX + "admin-key": "no"}, {"admin-key": "s3cret"}, infer):
                with refused("UNAVAILABLE", text + "admin-key'"):
                    client.get_model_repository_index(headers=headers, client_timeout=CALL_S)
                with refused("UNAVAILABLE", text + "admin-key'"):
                    client.is_server_live(headers=headers, client_timeout=CALL_S)
            client.get_model_repository_index(headers=admin, client_timeout=CALL_S)
            assert client.is_server_ready(headers=admin, client_timeout=CALL_S)
            for _ in range(3):
                with refused("UNAVAILABLE", text + "infer-key'"):
                    infer_grpc(client)
                infer_grpc(client, headers=infer)
            assert client.get_server_metadata(client_timeout=CALL_S).name == "triton"
            assert client.get_inference_statistics(client_timeout=CALL_S) is not None

    def test_grpc_streams(self, restricted: RunningServer) -> None:
        for headers, passes in ((None, False), ({PREFIX + "infer-key": "x"}, True)):
            results = stream(restricted, headers, 1)
            assert (results[0] is None) is passes
            assert passes or "expecting header" in str(results[0])

    def test_grpc_health_service(self, restricted: RunningServer) -> None:
        with grpc.insecure_channel(restricted.grpc_url) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            with pytest.raises(grpc.RpcError) as raised:
                check(b"", timeout=CALL_S)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
            assert check(b"", timeout=CALL_S, metadata=((PREFIX + "admin-key", "s3cret"),)) == b"\x08\x01"

    def test_values_are_not_logged(self, restricted: RunningServer) -> None:
        assert "model-repository,statistics:Admin-Key=..." in restricted.log
        assert "s3cret" not in restricted.log
        assert "Traceback" not in restricted.log


def stream(server: RunningServer, headers: dict[str, str] | None, count: int) -> list[Exception | None]:
    """Send ``count`` requests over a stream: what each ended with, up to the first error."""
    answers: queue.Queue[Exception | None] = queue.Queue()
    given = triton_grpc.InferInput("INPUT0", [2], "FP32")
    given.set_data_from_numpy(np.arange(2, dtype=np.float32))
    found: list[Exception | None] = []
    with calling(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put(error), headers=headers)
        for _ in range(count):
            # The client sends no more once it has seen that the call has ended; then the reason is in the queue.
            with contextlib.suppress(InferenceServerException):
                client.async_stream_infer("same", [given])
            found.append(answers.get(timeout=CALL_S))
            if found[-1] is not None:
                break
        client.stop_stream()
    return found


@pytest.fixture(scope="module", params=TRANSPORTS)
def keyed(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("keys")
    file = folder / "keys"
    file.write_text(
        f"# keys\nuser infer {hashed('user-key')}\nops manage,observe {hashed('ops-key')}\n"
        f"slow infer,observe {hashed('slow-key')} rate=0.001 burst=3\n"
        f"slow-grpc infer {hashed('slow-grpc-key')} rate=0.001 burst=3\n"
        f"slow-stream infer {hashed('slow-stream-key')} rate=0.001 burst=3\n"
    )
    options = ("--api-key-file", file, "--api-key", f"more observe {hashed('more-key')}", "--log-verbose", 1)
    with serving(folder / "log", models, *options, "--grpc-transport", request.param) as running:
        yield running


class TestKeys:
    """Keys with scopes and limits."""

    def test_health_needs_no_key(self, keyed: RunningServer) -> None:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/same/ready"):
            assert keyed.get(path).status == 200
        with calling(keyed.grpc_url) as client:
            assert client.is_server_live(client_timeout=CALL_S)

    @pytest.mark.parametrize("path", ["/v2", "/v2/models/stats", "/v3", "/openapi.json"])
    def test_http_without_a_key(self, keyed: RunningServer, path: str) -> None:
        for headers in ([], [("Authorization", "Basic dXNlcg==")]):
            answer = keyed.request("GET", path, None, headers)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="naiad"')
            assert answer.error == "an API key is needed; send one as 'Authorization: Bearer <key>'"

    @pytest.mark.parametrize("key", ["", "nope", "user-key2", "user-key, ops-key", hashed("user-key"), "\xe4" * 3000])
    def test_http_with_an_unknown_key(self, keyed: RunningServer, key: str) -> None:
        with keyed.connect() as peer:
            peer.sendall(f"GET /v2 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode("latin-1"))
            answer = read_response(peer)
        assert answer.status == 401
        if key:
            assert answer.headers["www-authenticate"] == 'Bearer realm="naiad", error="invalid_token"'

    def test_a_large_body_of_a_stranger_is_not_waited_for(self, keyed: RunningServer) -> None:
        fields: tuple[str, ...] = ("Content-Length: 60000000", "Transfer-Encoding: chunked")
        for field in (*fields, "Content-Length: 3\r\nExpect: 100-continue"):
            with keyed.connect() as peer:
                peer.sendall(f"POST /v2/models/same/infer HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n".encode())
                answer = read_response(peer)
                assert (answer.status, answer.headers["connection"]) == (401, "close")
                # What still comes is dropped, so that nobody who sends first and reads then is cut off.
                peer.sendall(bytes(1 << 20))

    def test_a_small_body_leaves_the_connection_open(self, keyed: RunningServer) -> None:
        with keyed.connect() as peer:
            for _ in range(3):
                peer.sendall(b"POST /v2/models/same/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
                peer.sendall(b"{}\n")
                answer = read_response(peer)
                assert answer.status == 401
                assert "connection" not in answer.headers

    def test_scopes_over_http(self, keyed: RunningServer) -> None:
        user, ops, more = (bearer(f"{name}-key") for name in ("user", "ops", "more"))
        for headers in (user, ops, more, ("authorization", "bearer   user-key")):
            assert keyed.request("GET", "/v2", None, [headers]).status == 200
        assert keyed.request("POST", "/v2/repository/index", b"", [ops]).status == 200
        assert keyed.request("GET", "/v2/models/stats", None, [more]).status == 200
        assert keyed.request("GET", "/v3", None, [user]).status == 404
        answer = keyed.request("POST", "/v2/repository/index", b"", [user])
        assert (answer.status, answer.type) == (403, "application/json")
        assert answer.error == "the API key 'user' is not for model-repository: it has infer, and manage is needed"
        assert 'error="insufficient_scope", scope="manage"' in answer.headers["www-authenticate"]
        assert keyed.request("POST", "/v2/models/same/infer", b"{}", [ops]).status == 403

    def test_metrics_need_the_scope_observe(self, keyed: RunningServer) -> None:
        for headers, status in (([], 401), ([bearer("user-key")], 403), ([bearer("ops-key")], 200)):
            assert keyed.request("GET", "/metrics", None, headers, port=keyed.metrics).status == status

    def test_limits_over_http(self, keyed: RunningServer) -> None:
        slow = bearer("slow-key")
        statuses = [keyed.request("GET", "/v2", None, [slow]).status for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        answer = keyed.request("GET", "/v2", None, [slow])
        assert 900 <= int(answer.headers["retry-after"]) <= 1000
        assert "'slow' is beyond its limit of 0.001 requests per second" in answer.error
        assert keyed.request("GET", "/v2", None, [bearer("user-key")]).status == 200
        assert keyed.request("GET", "/v2/health/live", None, [slow]).status == 200

    def test_grpc(self, keyed: RunningServer) -> None:
        user, ops, slow = ({"authorization": f"Bearer {name}-key"} for name in ("user", "ops", "slow-grpc"))
        with calling(keyed.grpc_url) as client:
            with refused("UNAUTHENTICATED", "an API key is needed"):
                infer_grpc(client)
            with refused("UNAUTHENTICATED", "the API key is not known"):
                infer_grpc(client, headers={"authorization": "Bearer x"})
            with refused(
                "PERMISSION_DENIED", "the API key 'ops' is not for inference: it has manage, observe, and infer"
            ):
                infer_grpc(client, headers=ops)
            for _ in range(3):
                infer_grpc(client, headers=user)
                client.get_model_repository_index(headers=ops, client_timeout=CALL_S)
            for _ in range(3):
                infer_grpc(client, headers=slow)
            for _ in range(3):
                with refused("RESOURCE_EXHAUSTED", "'slow-grpc' is beyond its limit"):
                    infer_grpc(client, headers=slow)
            infer_grpc(client, headers=user)

    def test_every_request_of_a_stream_counts(self, keyed: RunningServer) -> None:
        assert stream(keyed, {"authorization": "Bearer user-key"}, 6) == [None] * 6
        *passed, last = stream(keyed, {"authorization": "Bearer slow-stream-key"}, 6)
        assert passed == [None] * 3
        assert "'slow-stream' is beyond its limit" in str(last)

    def test_reflection_takes_any_key(self, keyed: RunningServer) -> None:
        with grpc.insecure_channel(keyed.grpc_url) as channel:
            ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
            with pytest.raises(grpc.RpcError) as raised:
                list(ask(iter([b""]), timeout=CALL_S))
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert len(list(ask(iter([b""]), timeout=CALL_S, metadata=(("authorization", "Bearer more-key"),)))) == 1

    def test_the_log_shows_names_alone(self, keyed: RunningServer) -> None:
        assert "more observe" in keyed.log
        assert hashed("more-key")[7:] not in keyed.log
        assert "Traceback" not in keyed.log


def test_keys_of_the_environment(tmp_path: Path, models: Path) -> None:
    entries = f"a infer {hashed('one')};b manage {hashed('two')}"
    with serving(tmp_path / "log", models, env={**server_environment(), "NAIAD_API_KEY": entries}) as server:
        assert server.get("/v2").status == 401
        assert server.request("GET", "/v2", None, [bearer("two")]).status == 200
        assert server.request("POST", "/v2/repository/index", b"", [bearer("one")]).status == 403


@pytest.mark.slow
def test_keys_and_restrictions_together(tmp_path: Path, models: Path) -> None:
    options = ("--api-key", f"a infer {hashed('one')}", "--http-restricted-api=inference:k=v")
    with serving(tmp_path / "log", models, *options) as server:
        for headers, status in (([("k", "v")], 401), ([bearer("one")], 403), ([bearer("one"), ("k", "v")], 400)):
            assert server.request("POST", "/v2/models/same/infer", b"{}", headers).status == status


@pytest.mark.slow
def test_a_key_file_that_cannot_be_used(tmp_path: Path, models: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("alice infer plain-key\n")
    code, log = run_to_end(tmp_path / "log", models, "--api-key-file", file)
    assert code == 1
    assert f"{file}:1: API key alice: the third word has to be sha256:" in log
    assert "plain-key" not in log
    assert "Traceback" not in log
