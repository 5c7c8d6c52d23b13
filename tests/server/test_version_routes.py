"""Aliases, splits and shadows of models with several versions, on a real server."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, read_response, request_bytes, serving, wait_until
from support.config_texts import parameter
from support.python_models import waits_for
from support.served_models import write_model
from support.versioned_models import ALL, ONNX, PYTHON, graph, request, served, shares, write_onnx, write_python

CLEAR = {"aliases": None, "split": None, "shadow": None}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_onnx(folder, "scales", 3)
    routes = parameter("route.alias.stable", 1) + parameter("route.split", "1:3,2:1")
    write_python(folder, "configured", 2, more=routes)
    write_model(folder, "mixed", "", (1,), graph(1, 2))
    write_model(folder, "mixed", "", (2,), graph(2, 3))
    (folder / "mixed" / "config.pbtxt").write_text(f'backend: "onnxruntime" {ALL}')
    return folder


@pytest.fixture(scope="module")
def running(repository: Path) -> Iterator[RunningServer]:
    log = repository.parent / "routes.log"
    with serving(log, repository, "--model-control-mode=explicit", "--load-model=*") as found:
        yield found


@pytest.fixture
def server(running: RunningServer) -> Iterator[RunningServer]:
    yield running
    assert running.post("/v2/models/scales/routes", CLEAR).status == 200


def change(server: RunningServer, model: str = "scales", **routes: Any) -> dict[str, Any]:
    answer = server.post(f"/v2/models/{model}/routes", routes)
    assert answer.status == 200, answer.body
    return dict(answer.json())


# Aliases


@pytest.mark.slow
def test_an_alias_stands_for_a_version_everywhere(server: RunningServer) -> None:
    change(server, aliases={"stable": 2, "Old-1.x": "1"})
    assert served(server, "scales/versions/stable", ONNX) == 2
    assert served(server, "scales/versions/Old-1.x", ONNX) == 1
    assert served(server, "scales", ONNX) == 3
    base = "/v2/models/scales/versions/stable"
    assert server.get(base).json()["versions"] == ["2"]
    assert server.get(base + "/ready").status == 200
    assert server.get(base + "/config").json()["name"] == "scales"
    (counted,) = server.get(base + "/stats").json()["model_stats"]
    assert counted["version"] == "2"
    generated = server.post("/v2/models/configured/versions/stable/generate", {"X": [1.0, 1.0]})
    assert (generated.status, generated.json()["model_version"]) == (200, "1")


def test_what_is_no_alias_is_no_path(server: RunningServer) -> None:
    change(server, aliases={"stable": 2})
    for path in ("scales/versions/latest", "scales/versions/stable2", "none/versions/stable"):
        for answer in (server.get(f"/v2/models/{path}"), server.post(f"/v2/models/{path}/infer", ONNX)):
            assert (answer.status, answer.error) == (404, "Not Found")
    change(server, aliases={"stable": None})
    assert server.get("/v2/models/scales/versions/stable/ready").status == 404


def test_grpc_callers_use_aliases(server: RunningServer) -> None:
    change(server, aliases={"stable": 2})
    given = tritonclient.grpc.InferInput("X", [1, 2], "FP32")
    given.set_data_from_numpy(np.ones((1, 2), np.float32))
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        # The second is read by what is remembered of the first.
        for _ in range(3):
            answer = client.infer("scales", [given], model_version="stable")
            assert answer.get_response().model_version == "2"
            assert answer.as_numpy("Y").tolist() == [[2.0, 2.0]]
        assert client.is_model_ready("scales", "stable")
        (counted,) = client.get_inference_statistics("scales", "stable").model_stats
        assert counted.version == "2"
        change(server, aliases={"stable": 3})
        assert client.infer("scales", [given], model_version="stable").get_response().model_version == "3"
        with pytest.raises(tritonclient.grpc.InferenceServerException, match="specified version string 'latest'"):
            client.infer("scales", [given], model_version="latest")


def test_http_clients_use_aliases(server: RunningServer) -> None:
    change(server, aliases={"stable": 2})
    given = tritonclient.http.InferInput("X", [1, 2], "FP32")
    given.set_data_from_numpy(np.ones((1, 2), np.float32))
    with tritonclient.http.InferenceServerClient(server.url) as client:
        for _ in range(3):
            answer = client.infer("scales", [given], model_version="stable")
            assert answer.get_response()["model_version"] == "2"


# The split


def test_a_split_is_exact(server: RunningServer) -> None:
    change(server, split={"1": 5, "2": 3, "3": 2})
    assert shares(server, "scales", ONNX, 30) == {1: 15, 2: 9, 3: 6}
    assert served(server, "scales/versions/2", ONNX) == 2


def test_a_split_holds_on_one_connection_with_binary_data(server: RunningServer) -> None:
    change(server, split={"1": 2, "3": 1})
    http = tritonclient.http.InferInput("X", [1, 2], "FP32")
    grpc = tritonclient.grpc.InferInput("X", [1, 2], "FP32")
    for given in (http, grpc):
        given.set_data_from_numpy(np.ones((1, 2), np.float32))
    found: Counter[tuple[str, float]] = Counter()
    with tritonclient.http.InferenceServerClient(server.url) as client:
        for number in range(30):
            answer = client.infer("scales", [http], request_id=str(number))
            found[answer.get_response()["model_version"], float(answer.as_numpy("Y")[0, 0])] += 1
    assert found == {("1", 1.0): 20, ("3", 3.0): 10}
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        for number in range(30):
            answer = client.infer("scales", [grpc], request_id=str(number))
            found[answer.get_response().model_version, float(answer.as_numpy("Y")[0, 0])] += 1
    assert found == {("1", 1.0): 40, ("3", 3.0): 20}


@pytest.mark.slow
def test_forwarded_headers_go_to_their_own_request_in_a_split(tmp_path: Path) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            said = json.loads(request.parameters()).get("caller", "nobody").encode()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([said], np.object_))]))
        return answers
"""
    folder = tmp_path / "models"
    model = write_python(folder, "says", 2, "import json\n" + source, parameter("route.split", "1:1,2:1"))
    text = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(
        text.replace('name: "Y" data_type: TYPE_FP32', 'name: "Y" data_type: TYPE_STRING')
    )
    given = tritonclient.grpc.InferInput("X", [1], "FP32")
    given.set_data_from_numpy(np.ones(1, np.float32))
    with (
        serving(tmp_path / "log", folder, "--grpc-header-forward-pattern=caller") as server,
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
    ):
        for caller in ("ann", "bob", None) * 4:
            headers = None if caller is None else {"caller": caller}
            answer = client.infer("says", [given], headers=headers)
            assert answer.as_numpy("Y")[0].decode() == (caller or "nobody")


def test_sequences_stay_with_their_version(server: RunningServer) -> None:
    change(server, split={"1": 1, "2": 1})
    found: dict[int, set[int]] = {
        number: {
            served(server, "scales", request((1, 2), sequence_id=number, sequence_start=at == 0, sequence_end=at == 3))
            for at in range(4)
        }
        for number in range(1, 9)
    }
    assert Counter(v for versions in found.values() for v in versions) == {1: 4, 2: 4}
    # One that goes on stays, also when its version has no share any more.
    first = served(server, "scales", request((1, 2), sequence_id="chat", sequence_start=True))
    change(server, split={str(3 - first): 1})
    assert served(server, "scales", request((1, 2), sequence_id="chat")) == first
    assert served(server, "scales", request((1, 2), sequence_id="chat", sequence_start=True)) == 3 - first
    change(server, aliases={"mine": 1})
    assert served(server, "scales/versions/mine", request((1, 2), sequence_id="alias", sequence_start=True)) == 1
    change(server, aliases={"mine": 2})
    assert served(server, "scales/versions/mine", request((1, 2), sequence_id="alias")) == 1
    assert served(server, "scales/versions/mine", ONNX) == 2


@pytest.mark.slow
def test_calls_of_python_models_and_streams_are_shared_too(tmp_path: Path) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(model_name="scales", requested_output_names=["Y"], inputs=[x])
            answers.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
        return answers
"""
    folder = tmp_path / "models"
    write_python(folder, "scales", 2, more=parameter("route.split", "1:3,2:1"))
    write_python(folder, "calls", 1, source)
    given = tritonclient.grpc.InferInput("X", [1], "FP32")
    given.set_data_from_numpy(np.ones(1, np.float32))
    found: SimpleQueue[Any] = SimpleQueue()
    with serving(tmp_path / "log", folder) as server:
        values = [server.infer("calls", PYTHON).json()["outputs"][0]["data"][0] for _ in range(8)]
        assert Counter(values) == {1.0: 6, 2.0: 2}
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            for _ in range(8):
                client.async_stream_infer("scales", [given])
            answers = [found.get(timeout=10)[0] for _ in range(8)]
            client.stop_stream()
        said = Counter((answer.get_response().model_version, float(answer.as_numpy("Y")[0])) for answer in answers)
        assert said == {("1", 1.0): 6, ("2", 2.0): 2}


def test_versions_that_differ_cannot_share(server: RunningServer) -> None:
    answer = server.post("/v2/models/mixed/routes", {"split": {"1": 1, "2": 1}})
    assert answer.status == 400
    assert "version 2: its inputs, outputs are not those of version 1" in answer.error


# One call


def test_promotion_and_rollback(server: RunningServer) -> None:
    change(server, split={"1": 9, "2": 1}, aliases={"stable": 1}, shadow={"version": 3, "fraction": 0.5})
    promoted = server.post("/v2/models/scales/routes/promote", {"version": 2, "alias": "stable"}).json()
    assert (promoted["split"], promoted["aliases"]) == ({"2": 1}, {"stable": "2"})
    assert shares(server, "scales", ONNX, 3) == {2: 3}
    shadow = server.post("/v2/models/scales/routes/promote", {}).json()
    assert (shadow["split"], shadow["shadow"]) == ({"3": 1}, None)
    assert server.post("/v2/models/scales/routes/promote", {}).error.endswith("name the 'version'")
    assert server.post("/v2/models/scales/routes/rollback", {}).json()["split"] == {"2": 1}
    back = server.request("POST", "/v2/models/scales/routes/rollback").json()
    assert (back["split"], back["aliases"]) == ({"1": 9, "2": 1}, {"stable": "1"})
    assert back["shadow"] == {"version": "3", "fraction": 0.5, "tolerance": 0.0}
    assert shares(server, "scales", ONNX, 10) == {1: 9, 2: 1}


def test_the_history_is_bounded(server: RunningServer) -> None:
    for number in range(40):
        shown = change(server, split={"1": number + 1, "2": 1})
    assert len(shown["history"]) == 16
    for _ in range(16):
        assert server.post("/v2/models/scales/routes/rollback", {}).status == 200
    answer = server.post("/v2/models/scales/routes/rollback", {})
    assert (answer.status, "nothing to go back to" in answer.error) == (400, True)


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (
            "routes",
            {"split": {"9": 1}},
            "names version 9, which is not loaded (there is no such version); loaded: 1, 2, 3",
        ),
        ("routes", {"aliases": {"x": 9}}, "alias 'x' of model 'scales' names version 9"),
        ("routes", {"shadow": {"version": 3}}, "it cannot be its own shadow"),
        ("routes", {"splits": {}}, "unknown field 'splits'"),
        ("routes", [1], "object"),
        ("routes", b"{", "JSON"),
        ("routes", b'{"split": ' + b"[" * 60000, "JSON"),
        ("routes", b" " * 70000, "65536"),
        ("routes/promote", {"version": 9}, "names version 9"),
        ("routes/promote", {"version": 1, "alias": 3}, "'alias' must be"),
        ("routes/promote", {"to": 1}, "unknown field 'to'"),
        ("routes/rollback", {"version": 1}, "takes no fields"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(server: RunningServer, path: str, body: Any, text: str) -> None:
    before = server.get("/v2/models/scales/routes").json()
    answer = server.post(f"/v2/models/scales/{path}", body)
    assert answer.status == 400
    assert text in answer.error
    assert server.get("/v2/models/scales/routes").json() == before


def test_unknown_models_and_methods(server: RunningServer) -> None:
    assert server.get("/v2/models/none/routes").status == 404
    assert server.post("/v2/models/none/routes", {}).status == 404
    assert server.request("DELETE", "/v2/models/scales/routes").status == 405


# From the configuration, and through loads


@pytest.mark.slow
def test_a_configuration_brings_routes_and_the_api_wins_until_it_changes(
    running: RunningServer, repository: Path
) -> None:
    server = running
    assert shares(server, "configured", PYTHON, 8) == {1: 6, 2: 2}
    assert served(server, "configured/versions/stable", PYTHON) == 1
    change(server, "configured", split={"2": 1})
    file = repository / "configured" / "config.pbtxt"
    file.write_text(file.read_text() + parameter("other", 1))
    assert server.post("/v2/repository/models/configured/load", {}).status == 200
    assert shares(server, "configured", PYTHON, 4) == {2: 4}
    file.write_text(file.read_text().replace("1:3,2:1", "1:1,2:1"))
    assert server.post("/v2/repository/models/configured/load", {}).status == 200
    assert shares(server, "configured", PYTHON, 4) == {1: 2, 2: 2}


def test_routes_of_a_configuration_that_name_no_version_are_in_the_log(tmp_path: Path) -> None:
    routes = parameter("route.shadow", "9:0.5") + parameter("route.alias.stable", 8) + parameter("route.alias.new", 1)
    folder = tmp_path / "models"
    write_python(folder, "configured", 1, more=routes)
    with serving(tmp_path / "log", folder) as server:
        pass
    alias, shadow = [line for line in server.log.splitlines() if "takes no requests by its routes" in line]
    assert "version 8 of model 'configured'" in alias and "alias 'stable' names it" in alias
    assert "version 9 of model 'configured'" in shadow and "shadow names it" in shadow


def test_wrong_routes_in_a_configuration_are_refused_with_their_name(running: RunningServer, repository: Path) -> None:
    write_onnx(repository, "wrong", 1, parameter("route.split", "1:many"))
    answer = running.post("/v2/repository/models/wrong/load", {})
    assert answer.status != 200
    assert "parameter 'route.split' has \"1:many\", expected version:weight" in answer.error


@pytest.mark.slow
def test_a_version_that_goes_leaves_the_split_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    model = write_onnx(folder, "scales", 3)
    with serving(tmp_path / "log", folder, "--model-control-mode=explicit", "--load-model=*") as server:
        change(server, split={"1": 1, "3": 1}, aliases={"stable": 3})
        (model / "3").rename(tmp_path / "3")
        config = (model / "config.pbtxt").read_text()
        (model / "config.pbtxt").write_text(config + parameter("x", 1))
        assert server.post("/v2/repository/models/scales/load", {}).status == 200
        assert shares(server, "scales", ONNX, 4) == {1: 4}
        rows = server.index()
        (row,) = [row for row in rows if row.get("version") == "3"]
        assert "not loaded" in row["reason"]
        answer = server.post("/v2/models/scales/versions/stable/infer", ONNX)
        assert (answer.status, "names version 3" in answer.error) == (503, True)
        assert server.get("/v2/models/scales/versions/stable/ready").status == 400
        assert server.get("/v2/models/scales/routes").json()["serving"] == {"1": 1}
        (tmp_path / "3").rename(model / "3")
        (model / "config.pbtxt").write_text(config)
        assert server.post("/v2/repository/models/scales/load", {}).status == 200
        assert shares(server, "scales", ONNX, 4) == {1: 2, 3: 2}
        assert served(server, "scales/versions/stable", ONNX) == 3
        assert server.post("/v2/repository/models/scales/unload", {}).status == 200
        answer = server.post("/v2/models/scales/infer", ONNX)
        assert answer.status in (404, 503)
        assert server.post("/v2/models/scales/routes/promote", {"version": 2}).error.count("not loaded") == 1


@pytest.mark.slow
def test_nothing_fails_while_routes_change_and_models_load(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    model = write_onnx(folder, "scales", 3)
    with serving(tmp_path / "log", folder, "--model-control-mode=explicit", "--load-model=*") as server:
        change(server, split={"1": 1, "2": 1}, shadow={"version": 3}, aliases={"stable": 1})
        is_over = threading.Event()
        found: list[int] = []

        def ask(path: str) -> None:
            while not is_over.is_set():
                found.append(served(server, path, ONNX))

        with ThreadPoolExecutor(6) as pool:
            asking = [pool.submit(ask, path) for path in ("scales", "scales/versions/stable") * 3]
            try:
                config = (model / "config.pbtxt").read_text()
                for number in range(8):
                    (model / "config.pbtxt").write_text(config + parameter("x", number))
                    assert server.post("/v2/repository/models/scales/load", {}).status == 200
                    promotion = {"version": number % 3 + 1, "alias": "stable"}
                    assert server.post("/v2/models/scales/routes/promote", promotion).status == 200
                    if number % 2:
                        assert server.post("/v2/models/scales/routes/rollback", {}).status == 200
            finally:
                is_over.set()
            for one in asking:
                one.result()
        assert len(found) > 100
        assert set(found) == {1, 2, 3}
        wait_until(lambda: shadow(server)["in_flight"] == 0 if shadow(server) else True, 5, "no copy is left")
        assert "Traceback" not in server.log


# The shadow


def shadow(server: RunningServer, model: str = "scales") -> dict[str, Any]:
    return dict(server.get(f"/v2/models/{model}/routes").json()["shadow_statistics"] or {})


def test_a_shadow_gets_its_fraction_and_differences_are_counted(server: RunningServer) -> None:
    change(server, split={"1": 1}, shadow={"version": 3, "fraction": 0.5, "tolerance": 1.5})
    assert shares(server, "scales", ONNX, 20) == {1: 20}
    wait_until(lambda: shadow(server)["compared"] == 10, 5, "ten answers are compared")
    found = shadow(server)
    assert (found["differing"], found["largest_difference"], found["errors"], found["skipped"]) == (10, 2.0, 0, 0)
    page = server.metrics_page()
    assert 'naiad_shadow_compared{model="scales",version="3"} 10' in page
    assert 'naiad_shadow_difference_bucket{le="10",model="scales",version="3"} 10' in page
    (counted,) = server.get("/v2/models/scales/versions/3/stats").json()["model_stats"]
    assert counted["inference_count"] >= 10


def test_large_answers_are_compared_too(server: RunningServer) -> None:
    change(server, "configured", split={"1": 1}, shadow={"version": 2})
    http = tritonclient.http.InferInput("X", [100_000], "FP32")
    http.set_data_from_numpy(np.ones(100_000, np.float32))
    with tritonclient.http.InferenceServerClient(server.url) as client:
        answer = client.infer("configured", [http])
        assert float(answer.as_numpy("Y").sum()) == 100_000
    wait_until(lambda: shadow(server, "configured")["compared"] == 1, 5, "the answer is compared")
    assert shadow(server, "configured")["largest_difference"] == 1.0
    assert server.post("/v2/models/configured/routes/rollback", {}).status == 200


@pytest.mark.slow
def test_a_shadow_that_fails_or_hangs_costs_the_callers_nothing(tmp_path: Path) -> None:
    source = """
class TritonPythonModel:
    def initialize(self, args):
        self.version = int(args["model_version"])

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if self.version == 2:
                raise ValueError("no")
            if self.version == 3:
                while not os.path.exists(FILE):
                    time.sleep(0.01)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return answers
"""
    file = tmp_path / "go on"
    write_python(tmp_path / "models", "slow", 3, source.replace("FILE", json.dumps(str(file))))
    with serving(tmp_path / "log", tmp_path / "models", "--model-control-mode=explicit", "--load-model=*") as server:
        change(server, "slow", split={"1": 1}, shadow={"version": 2})
        for _ in range(5):
            assert server.infer("slow", PYTHON).status == 200
        wait_until(lambda: shadow(server, "slow")["errors"] == 5, 5, "the shadow fails")
        change(server, "slow", shadow={"version": 3})
        for _ in range(40):
            assert server.infer("slow", PYTHON).status == 200
        wait_until(lambda: shadow(server, "slow")["skipped"] == 8, 5, "those beyond the bound are left out")
        assert shadow(server, "slow")["in_flight"] == 32
        file.touch()
        wait_until(lambda: shadow(server, "slow")["in_flight"] == 0, 10, "the shadow answers")
        assert shadow(server, "slow")["compared"] == 32
        assert shadow(server, "slow")["differing"] == 0
        # A shadow that goes takes none any more, and nobody notices.
        assert server.post("/v2/models/slow/routes", {"split": {"1": 1, "2": 1}, "shadow": None}).status == 200


@pytest.mark.slow
def test_a_caller_that_leaves_takes_its_request_from_the_queue_with_a_shadow_too(tmp_path: Path) -> None:
    file = tmp_path / "go on"
    write_python(tmp_path / "models", "slow", 2, waits_for(file))
    with serving(tmp_path / "log", tmp_path / "models") as server:
        change(server, "slow", split={"1": 1}, shadow={"version": 2})
        peers = [server.connect() for _ in range(2)]
        for peer in peers:
            body = json.dumps(PYTHON).encode()
            peer.sendall(request_bytes("POST", "/v2/models/slow/infer", body))
        pending = 'nv_inference_pending_request_count{model="slow",version="1"} '
        wait_until(lambda: pending + "1" in server.metrics_page(), 10, "one waits")
        peers[1].close()
        wait_until(lambda: pending + "0" in server.metrics_page(), 10, "it has left before the other is done")
        file.touch()
        assert read_response(peers[0]).status == 200
        peers[0].close()
        wait_until(lambda: shadow(server, "slow")["compared"] == 1, 10, "the other was copied")
        assert shadow(server, "slow")["in_flight"] == 0


@pytest.mark.slow
def test_restricted_routes_and_aliases_of_models(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write_onnx(folder, "scales", 2, parameter("route.alias.stable", 1))
    restricted = ("--http-restricted-api=inference:secret=a", "--http-restricted-api=model-repository:admin=b")
    with serving(tmp_path / "log", folder, *restricted) as server:
        path = "/v2/models/scales/versions/stable/infer"
        assert server.post(path, ONNX).status == 403
        body = json.dumps(ONNX).encode()
        assert server.request("POST", path, body, (("secret", "a"),)).json()["model_version"] == "1"
        for method, what in (("GET", ""), ("POST", ""), ("POST", "/promote"), ("POST", "/rollback")):
            assert server.request(method, "/v2/models/scales/routes" + what, b"{}").status == 403
        assert server.request("GET", "/v2/models/scales/routes", None, (("admin", "b"),)).status == 200
