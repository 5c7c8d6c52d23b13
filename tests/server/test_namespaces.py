"""Models of one name in several repositories, each a namespace (``--model-namespacing``)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving, wait_until
from support.served_ensembles import step, write_ensemble
from support.served_models import identity, numbers, write_model
from support.versioned_models import ONNX, graph

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


@pytest.mark.slow
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


@pytest.mark.slow
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
        page = server.metrics_page()
        for repository in repositories:
            assert f'nv_inference_count{{model="both",namespace="{repository}",version="1"}} 0' in page
        # A scraper takes no page with one series twice.
        series = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
        assert sorted(series) == sorted(set(series))
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
        wait_until(lambda: ready(server) == [], 10, "both are unloaded")
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


@pytest.mark.slow
def test_polling_follows_all_namespaces(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    poll = ("--model-control-mode=poll", "--repository-poll-secs=1")
    shutil.rmtree(repositories[1] / "both")
    with serving(tmp_path / "log", *options(repositories), *poll) as server:
        assert server.infer("both", numbers([1])).status == 200
        write_model(repositories[1], "both", identity())
        wait_until(lambda: server.infer("both", numbers([1])).status == 400, 10, "the second of the name is loaded")
        shutil.rmtree(repositories[0] / "both")
        wait_until(lambda: server.infer("both", numbers([1])).status == 200, 10, "the first of the name is unloaded")
        assert ("both", "second") in ready(server)


@pytest.mark.slow
def test_one_that_is_broken_does_not_stand_in_the_way(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    (repositories[0] / "both" / "config.pbtxt").write_text("nonsense {")
    with serving(tmp_path / "log", *options(repositories), "--exit-on-error=false") as server:
        assert server.infer("both", numbers([1])).status == 200
        assert server.get("/v2/health/ready").status == 400


def write_scales(repository: Path, factor: int) -> None:
    write_model(repository, "scales", 'backend: "onnxruntime" max_batch_size: 8', (1,), graph(factor))


def factor(server: RunningServer, name: str) -> float:
    """What a model multiplies with; 0 when it is not there."""
    answer = server.infer(name, ONNX)
    return float(answer.json()["outputs"][0]["data"][0]) if answer.status == 200 else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["poll", "explicit"])
def test_an_ensemble_takes_the_member_of_another_namespace_until_its_own_comes(tmp_path: Path, mode: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    away = tmp_path / "away"
    tensors = {"inputs": {"X": "TYPE_FP32 2"}, "outputs": {"Y": "TYPE_FP32 2"}}
    for repository, number in ((first, 1), (second, 2)):
        write_scales(repository, number)
        write_ensemble(repository, f"of_{repository.name}", step("scales", {"X": "X"}, {"Y": "Y"}), **tensors)
    control = ("--model-control-mode=poll", "--repository-poll-secs=1") if mode == "poll" else (EXPLICIT,)

    def load(server: RunningServer, *names: str) -> None:
        for name in names if mode == "explicit" else ():
            answer = server.post(f"/v2/repository/models/{name}/load", {})
            assert answer.status == 200, answer.error

    with serving(tmp_path / "log", *options((first, second)), *control) as server:
        (first / "scales").rename(away)
        load(server, "of_first", "of_second")
        wait_until(lambda: factor(server, "of_first") == 2, 20, "the other namespace's member answers")
        assert factor(server, "of_second") == factor(server, "scales") == 2
        away.rename(first / "scales")
        load(server, "of_first")
        wait_until(lambda: factor(server, "of_first") == 1, 20, "its own member answers again")
        assert factor(server, "of_second") == 2
        assert "There are 2 identifiers" in server.infer("scales", ONNX).error
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_loading_ensembles_loads_the_members_of_their_own_namespaces(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    tensors = {"inputs": {"X": "TYPE_FP32 2"}, "outputs": {"Y": "TYPE_FP32 2"}}
    for repository, number in ((first, 1), (second, 2)):
        write_scales(repository, number)
        write_ensemble(repository, f"of_{repository.name}", step("scales", {"X": "X"}, {"Y": "Y"}), **tensors)
    with serving(tmp_path / "log", *options((first, second)), EXPLICIT) as server:
        for name, number in (("of_second", 2), ("of_first", 1)):
            assert server.post(f"/v2/repository/models/{name}/load", {}).status == 200
            assert factor(server, name) == number
