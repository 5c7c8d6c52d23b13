"""Models of one name in several repositories, each a namespace (``--model-namespacing``)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from server.models import identity, numbers, write_model
from server.running import RunningServer, serving, until

AMBIGUOUS = (
    "There are 2 identifiers of model 'both' in global map, model namespace must be provided to resolve ambiguity."
)
EXPLICIT = "--model-control-mode=explicit"


@pytest.fixture
def repositories(tmp_path: Path) -> tuple[Path, Path]:
    for repository in ("first", "second"):
        write_model(tmp_path / repository, "both", identity())
        write_model(tmp_path / repository, f"only_{repository}", identity())
    return tmp_path / "first", tmp_path / "second"


def options(repositories: tuple[Path, Path]) -> tuple[object, ...]:
    first, second = repositories
    return ("--model-repository", first, "--model-repository", second, "--model-namespacing=true")


def ready(server: RunningServer) -> list[tuple[str, str]]:
    rows = server.post("/v2/repository/index", {"ready": True}).json()
    return [(row["name"], Path(row["namespace"]).name) for row in rows]


def test_a_name_alone_is_loaded_on_demand_and_has_routes(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    more = (EXPLICIT, "--load-model=only_second", "--load-on-demand-secs=20")
    with serving(tmp_path / "log", *options(repositories), *more) as server:
        assert server.infer("only_first", numbers([1])).status == 200
        assert ("only_first", "first") in ready(server)
        answer = server.infer("both", numbers([1]))
        assert (answer.status, answer.error) == (400, "Request for unknown model: 'both' is not found")
        assert server.post("/v2/repository/models/only_first/unload", {}).status == 200
        assert server.infer("only_first", numbers([1])).status == 404
        answer = server.post("/v2/models/only_second/routes", {"aliases": {"stable": 1}})
        assert answer.status == 200, answer.error
        assert server.infer("only_second/versions/stable", numbers([1])).status == 200


def test_names_that_repeat_are_served_apart(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    with serving(tmp_path / "log", *options(repositories)) as server:
        both = [("both", "first"), ("both", "second")]
        assert sorted(ready(server)) == [*both, ("only_first", "first"), ("only_second", "second")]
        assert server.get("/v2/health/ready").status == 200
        for name in ("only_first", "only_second"):
            assert server.infer(name, numbers([1])).status == 200
            assert server.get(f"/v2/models/{name}").json()["versions"] == ["1"]
            assert server.get(f"/v2/models/{name}/config").status == 200
            assert server.statistics(name)["inference_count"] == 1
        for path in ("/v2/models/both", "/v2/models/both/config", "/v2/models/both/stats", "/v2/models/both/ready"):
            answer = server.get(path)
            assert (answer.status, answer.error if answer.body else AMBIGUOUS) == (400, AMBIGUOUS)
        answer = server.infer("both", numbers([1]))
        assert (answer.status, answer.error) == (400, AMBIGUOUS)
        answer = server.infer("nope", numbers([1]))
        assert (answer.status, answer.error) == (400, "Request for unknown model: 'nope' is not found")
        assert server.post("/v2/models/both/trace/setting", {}).status == 400
        page = server.ask("GET", "/metrics", port=server.metrics).body.decode()
        for repository in repositories:
            assert f'nv_inference_count{{model="both",namespace="{repository}",version="1"}} 0' in page
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            names = [model.name for model in client.get_model_repository_index().models]
            assert names == ["both", "only_first", "both", "only_second"]
            with pytest.raises(InferenceServerException, match="model namespace must be provided") as caught:
                client.get_model_metadata("both")
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
            assert client.is_model_ready(f"{repositories[0]}/both")
            with pytest.raises(InferenceServerException, match=r"only_first/. is not found"):
                client.is_model_ready("only_first/")


def test_all_of_a_name_are_loaded_and_unloaded(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    with serving(tmp_path / "log", *options(repositories), EXPLICIT, "--load-model=both") as server:
        assert ready(server) == [("both", "first"), ("both", "second")]
        assert server.post("/v2/repository/models/both/unload", {}).status == 200
        until(lambda: ready(server) == [], 10, "both are unloaded")
        assert server.infer("both", numbers([1])).status == 404
        assert server.post("/v2/repository/models/both/load", {}).status == 200
        assert len(ready(server)) == 2
        config = {"parameters": {"config": json.dumps({"backend": "identity"})}}
        answer = server.post("/v2/repository/models/both/load", config)
        assert (answer.status, answer.error) == (400, AMBIGUOUS)
        assert server.post("/v2/repository/models/nope/load", {}).status == 500
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            client.unload_model(f"{repositories[1]}/both")
            assert server.infer("both", numbers([1])).status == 200
            client.load_model(f"{repositories[1]}/both")
            assert server.infer("both", numbers([1])).status == 400
            for name in ("/etc/both", "../both", f"{repositories[0]}/../second/both", f"{repositories[0]}/nope"):
                with pytest.raises(InferenceServerException, match="failed to load"):
                    client.load_model(name)
        assert "Traceback" not in server.log


def test_polling_follows_all_namespaces(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    poll = ("--model-control-mode=poll", "--repository-poll-secs=1")
    shutil.rmtree(repositories[1] / "both")
    with serving(tmp_path / "log", *options(repositories), *poll) as server:
        assert server.infer("both", numbers([1])).status == 200
        write_model(repositories[1], "both", identity())
        until(lambda: server.infer("both", numbers([1])).status == 400, 10, "the second of the name is loaded")
        shutil.rmtree(repositories[0] / "both")
        until(lambda: server.infer("both", numbers([1])).status == 200, 10, "the first of the name is unloaded")
        assert ("both", "second") in ready(server)


def test_one_that_is_broken_does_not_stand_in_the_way(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    (repositories[0] / "both" / "config.pbtxt").write_text("nonsense {")
    with serving(tmp_path / "log", *options(repositories), "--exit-on-error=false") as server:
        assert server.infer("both", numbers([1])).status == 200
        assert server.get("/v2/health/ready").status == 400
