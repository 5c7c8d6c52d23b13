"""Models that come and go over the API of a real server, with the official clients and over plain sockets."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, run_to_end, serving, wait_until
from support.served_models import identity, numbers, write_model
from support.traffic import Traffic

CONFIG = {
    "backend": "identity",
    "max_batch_size": 0,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
}
EXPLICIT = "--model-control-mode=explicit"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        write_model(tmp_path / "models", name, identity())
    return tmp_path / "models"


@pytest.fixture
def server(repository: Path, tmp_path: Path) -> Iterator[RunningServer]:
    with serving(tmp_path / "log", "--model-repository", repository, EXPLICIT, "--load-model=first") as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for the tests that change no model."""
    folder = tmp_path_factory.mktemp("unchanged")
    write_model(folder / "models", "second", identity())
    with serving(folder / "log", folder / "models", EXPLICIT) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def client(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    module = tritonclient.http if request.param == "http" else tritonclient.grpc
    found = module.InferenceServerClient(server.url if request.param == "http" else server.grpc_url)
    yield found
    found.close()


def touch(folder: Path) -> None:
    """Give the files of a model another time."""
    file = folder / "config.pbtxt"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1_000_000_000))


# The start


@pytest.mark.parametrize(
    ("arguments", "ready"),
    [([], []), (["--load-model=second"], ["second"]), (["--load-model=*"], ["first", "second"])],
)
def test_what_is_loaded_at_the_start(repository: Path, tmp_path: Path, arguments: list[str], ready: list[str]) -> None:
    with serving(tmp_path / "log", repository, EXPLICIT, *arguments) as server:
        assert [row["name"] for row in server.index() if row.get("state") == "READY"] == ready
        assert [row["name"] for row in server.index()] == ["first", "second"]
        # The table of the log has those that were to be loaded.
        table = server.log[server.log.index("| Model ") :]
        assert [name for name in ("first", "second") if f"| {name} " in table] == ready
        assert server.get("/v2/health/ready").status == 200


@pytest.mark.slow
def test_a_name_that_is_not_there_ends_the_start(repository: Path, tmp_path: Path) -> None:
    code, log = run_to_end(tmp_path / "log", repository, EXPLICIT, "--load-model=nope")
    assert code == 1
    assert "failed to load 'nope'" in log
    with serving(tmp_path / "log", repository, EXPLICIT, "--load-model=nope", "--exit-on-error=false") as server:
        assert server.get("/v2/health/ready").status == 400
        assert server.post("/v2/repository/models/nope/unload", {}).status == 200
        assert server.get("/v2/health/ready").status == 200


# Both protocols


@pytest.mark.slow
def test_load_and_unload(client: Any, server: RunningServer) -> None:
    assert not client.is_model_ready("second")
    client.load_model("second")
    assert client.is_model_ready("second")
    assert server.infer("second", numbers([5])).json()["outputs"][0]["data"] == [5]
    client.unload_model("second")
    assert not client.is_model_ready("second")
    answer = server.infer("second", numbers([5]))
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'second' has no available versions")
    gone = {"name": "second", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    wait_until(lambda: gone in server.index(), 5, "is unloaded")
    assert client.is_server_ready()
    client.unload_model("nope")
    with pytest.raises(InferenceServerException, match="failed to load 'nope', failed to poll from model repository"):
        client.load_model("nope")


@pytest.mark.slow
def test_a_model_that_is_put_into_the_repository_later(client: Any, server: RunningServer, repository: Path) -> None:
    write_model(repository, "third", identity())
    assert {"name": "third"} in server.index()
    client.load_model("third")
    assert client.is_model_ready("third")


@pytest.mark.slow
def test_a_configuration_and_files(client: Any, server: RunningServer) -> None:
    client.load_model("first", config=json.dumps({**CONFIG, "max_batch_size": 3}))
    assert server.get("/v2/models/first/config").json()["max_batch_size"] == 3
    client.load_model("fourth", config=json.dumps(CONFIG), files={"file:2/data": os.urandom(100_000)})
    assert server.get("/v2/models/fourth").json()["versions"] == ["2"]
    with pytest.raises(InferenceServerException, match="names no file of the model"):
        client.load_model("fourth", config=json.dumps(CONFIG), files={"file:../../data": b"x"})
    with pytest.raises(InferenceServerException, match="Load parameter 'config' must be specified for model file"):
        client.load_model("fourth", files={"file:2/data": b"x"})
    wrong = "Invalid config override: the parameter 'config' is no model configuration as JSON"
    with pytest.raises(InferenceServerException, match=wrong):
        client.load_model("first", config="{")
    assert wrong in server.log
    assert client.is_model_ready("fourth")
    assert client.is_model_ready("first")


@pytest.mark.slow
def test_a_reload_that_fails(client: Any, server: RunningServer, repository: Path) -> None:
    (repository / "first" / "config.pbtxt").write_text(identity().replace('"identity"', '"nonsense"'))
    with pytest.raises(InferenceServerException, match="load failed for model 'first'"):
        client.load_model("first")
    assert client.is_model_ready("first")
    assert client.is_server_ready()
    (row,) = [row for row in server.index() if row["name"] == "first"]
    assert row["state"] == "READY"
    assert "could not be loaded again" in row["reason"]


# HTTP


@pytest.mark.slow
def test_answers_over_http(server: RunningServer) -> None:
    answer = server.request("POST", "/v2/repository/models/second/load", b"")
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/json", b"")
    answer = server.request("POST", "/v2/repository/models/second/unload", b"{}")
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/json", b"")
    answer = server.post("/v2/repository/any/models/second/load", {})
    assert (answer.status, answer.error) == (501, "'repository_name' specification is not supported")


@pytest.mark.parametrize(
    ("verb", "body", "status", "text"),
    [
        ("load", b"{", 400, "failed to parse the request JSON buffer"),
        ("load", b"5", 400, "expected a JSON object"),
        ("load", b'{"parameters": []}', 400, "Unable to parse 'parameters'"),
        ("load", b'{"parameters": {"config": 5}}', 400, "Unable to parse 'config'"),
        ("load", b'{"parameters": {"foo": "x"}}', 400, "Unrecognized load parameter 'foo' with type 'STRING'"),
        ("load", b'{"parameters": {"foo": true}}', 400, "Unrecognized load parameter 'foo' with type 'BOOL'"),
        ("load", b'{"parameters": {"config": "{}", "file:1/x": 3}}', 400, "Unable to parse 'file:1/x'"),
        ("load", b'{"parameters": {"config": "{}", "file:1/x": "!!!"}}', 400, "is not base64"),
        ("unload", b'{"parameters": {"unload_dependents": "x"}}', 400, "Unable to parse 'unload_dependents'"),
        ("unload", b'{"parameters": {"unload_dependents": true}}', 200, ""),
    ],
)
def test_bodies_over_http(unchanged: RunningServer, verb: str, body: bytes, status: int, text: str) -> None:
    answer = unchanged.post(f"/v2/repository/models/second/{verb}", body)
    assert answer.status == status
    assert text in answer.body.decode()


@pytest.mark.slow
def test_in_the_other_mode_both_are_refused(repository: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", repository) as server:
        for verb in ("load", "unload"):
            answer = server.post(f"/v2/repository/models/first/{verb}", {})
            assert answer.status == 503
            assert answer.error.startswith("explicit model load / unload is not allowed if polling is enabled")
            assert "start the server with --model-control-mode=explicit" in answer.error
        with (
            tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
            pytest.raises(InferenceServerException, match=r"UNAVAILABLE.*explicit model load / unload is not allowed"),
        ):
            client.load_model("first")
        assert server.infer("first", numbers([5])).status == 200


@pytest.mark.slow
def test_others_are_served_while_large_files_arrive(server: RunningServer) -> None:
    content = base64.b64encode(os.urandom(30_000_000)).decode()
    body = json.dumps({"parameters": {"config": json.dumps(CONFIG), "file:1/data": content}}).encode()
    answers: list[int] = []
    loading = threading.Thread(
        target=lambda: answers.append(server.post("/v2/repository/models/large/load", body).status)
    )
    loading.start()
    asked = 0
    while loading.is_alive():
        assert server.infer("first", numbers([5])).status == 200
        asked += 1
    loading.join()
    assert answers == [200]
    assert asked > 3


# gRPC


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("..", "invalid model name '..', model name must not contain path traversal characters"),
        ("a/b", "invalid model name 'a/b', model name must not contain path traversal characters"),
        ("", "Model name cannot be empty. Please enter a valid name to deploy."),
    ],
)
def test_a_name_that_no_model_can_have_is_a_mistake_of_the_caller(
    unchanged: RunningServer, name: str, text: str
) -> None:
    with tritonclient.grpc.InferenceServerClient(unchanged.grpc_url) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.load_model(name)
        assert (caught.value.status(), caught.value.message()) == ("StatusCode.INVALID_ARGUMENT", text)
    if name == "..":
        answer = unchanged.post("/v2/repository/models/../load", {})
        assert (answer.status, answer.error) == (400, text)
    assert [model["name"] for model in unchanged.post("/v2/repository/index", {}).json()] == ["second"]


@pytest.mark.slow
def test_wrong_parameters_over_grpc(server: RunningServer) -> None:
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def load(**more: Any) -> tuple[str, str]:
            request = service_pb2.RepositoryModelLoadRequest(model_name="second", **more)
            with pytest.raises(grpc.RpcError) as caught:
                stub.RepositoryModelLoad(request, timeout=10)
            return caught.value.code().name, caught.value.details()

        text = service_pb2.ModelRepositoryParameter(string_param="x")
        number = service_pb2.ModelRepositoryParameter(int64_param=5)
        assert load(parameters={"foo": text}) == ("INVALID_ARGUMENT", "unrecognized load parameter 'foo'.")
        wrong = ("INVALID_ARGUMENT", "invalid value type for load parameter 'config', expected string_param.")
        assert load(parameters={"config": number}) == wrong
        wrong = ("INVALID_ARGUMENT", "invalid value type for load parameter 'file:x', expected bytes_param.")
        assert load(parameters={"file:x": text}) == wrong
        assert load(repository_name="r") == ("UNIMPLEMENTED", "'repository_name' specification is not supported")
        request = service_pb2.RepositoryModelUnloadRequest(model_name="second", parameters={"unload_dependents": text})
        with pytest.raises(grpc.RpcError, match="invalid value type for 'unload_dependents' parameter, expected bool"):
            stub.RepositoryModelUnload(request, timeout=10)


def test_unknown_parameters_of_an_unload_are_ignored_over_both_protocols(server: RunningServer) -> None:
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    assert server.post("/v2/repository/models/second/unload", {"parameters": {"foo": "x"}}).status == 200
    text = service_pb2.ModelRepositoryParameter(string_param="x")
    with grpc.insecure_channel(server.grpc_url) as channel:
        request = service_pb2.RepositoryModelUnloadRequest(model_name="second", parameters={"foo": text})
        service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelUnload(request, timeout=10)


def test_the_log_names_versions_that_a_policy_asks_for_in_vain(tmp_path: Path) -> None:
    policy = "version_policy { specific { versions: [ 1, 9 ] } }"
    write_model(tmp_path / "models", "some", identity() + policy)
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert [row["version"] for row in server.index()] == ["1"]
        assert "version 9 is specified for model 'some', but the version directory is not present" in server.log
        assert "version 1 is specified" not in server.log


# Under traffic


@pytest.mark.slow
@pytest.mark.parametrize("delay_ms", [0, 3])
def test_no_request_fails_while_its_model_is_loaded_anew(repository: Path, tmp_path: Path, delay_ms: int) -> None:
    folder = write_model(repository, "busy", identity(delay_ms=delay_ms))
    with (
        serving(tmp_path / "log", repository, EXPLICIT, "--load-model=busy") as server,
        Traffic(server, "busy", http=2, grpc=2) as traffic,
    ):
        for round in range(10):
            answered = traffic.answered
            (folder / "notes.txt").write_text("round" * round)
            assert server.post("/v2/repository/models/busy/load", {}).status == 200
            if round == 5:
                before = (folder / "config.pbtxt").read_text()
                (folder / "config.pbtxt").write_text("nonsense {")
                assert server.post("/v2/repository/models/busy/load", {}).status == 500
                (folder / "config.pbtxt").write_text(before)
            wait_until(
                lambda before=answered: traffic.answered > before + 20 or traffic.failures, 10, "requests are answered"
            )
        assert traffic.failures == []
        assert server.log.count("successfully loaded 'busy'") == 11
        wait_until(lambda: server.log.count("successfully unloaded 'busy'") == 10, 5, "earlier copies end")


@pytest.mark.slow
def test_over_the_other_transport(repository: Path, tmp_path: Path) -> None:
    with (
        serving(tmp_path / "log", repository, EXPLICIT, "--grpc-transport=grpcio") as server,
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
    ):
        client.load_model("first", config=json.dumps({**CONFIG, "max_batch_size": 3}))
        assert client.is_model_ready("first")
        assert [m.name for m in client.get_model_repository_index().models] == ["first", "second"]
        client.unload_model("first")
        assert not client.is_model_ready("first")
        with pytest.raises(InferenceServerException, match="failed to load 'nope'"):
            client.load_model("nope")
