"""SageMaker's port with several models: loads, lists, invocations and unloads."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.testing import HttpResponse, read_response, request_bytes
from support.cloud_ports import EXPLICIT, sagemaker
from support.served_models import LOOK_UP, SUM_AND_DIFFERENCE, identity, numbers, write_model
from support.server_port import ServerPort, loaded

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
TARGET = "X-Amzn-SageMaker-Target-Model"
NO_MEMORY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        raise pb_utils.TritonModelException("CUDA out of memory. Tried to allocate 2.00 GiB")
"""
NO_ROOM = NO_MEMORY.replace("execute(self, requests)", "initialize(self, args)")
PYTHON = identity().replace('"identity"', '"python"')
ENSEMBLE = """platform: "ensemble"
    input [ { name: "X" data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] } ]
    ensemble_scheduling { step [ { model_name: "member" model_version: -1
        input_map { key: "INPUT0" value: "X" } output_map { key: "OUTPUT0" value: "Y" } } ] }"""


def write_archives(root: Path) -> None:
    """Folders as SageMaker makes them of archives: ``<hash>/model`` is a model, or holds some."""
    for name in ("first", "second"):
        write_model(root / name, "model", f'name: "of_the_archive" {identity()}')
    write_model(root / "inner" / "model", "packed", identity())
    write_model(root / "deeper" / "model", "sub", identity())
    write_model(root / "sums", "model", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    write_model(root / "look_up", "model", "max_batch_size: 8", graph=LOOK_UP)
    write_model(root / "slow", "model", identity(delay_ms=700))
    for name in ("together", "alike"):
        write_model(root / name / "model", "whole", ENSEMBLE)
        write_model(root / name / "model", "member", identity())
    write_model(root / "several" / "model", "one", identity())
    write_model(root / "several" / "model", "two", identity())
    write_model(root / "broken", "model", identity(extra="nonsense"))
    (root / "empty" / "model").mkdir(parents=True)
    for name, text in (("no_memory", NO_MEMORY), ("no_room", NO_ROOM)):
        folder = write_model(root / name, "model", PYTHON)
        (folder / "1" / "model.py").write_text(text)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ml") / "models"
    write_archives(folder)
    (folder.parent / "none").mkdir()
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["namespaces", "names"])
def port(request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPort]:
    options = (EXPLICIT, f"--model-namespacing={request.param}".lower(), "--model-repository", root.parent / "none")
    variables = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_MODELS_DIRECTORY": str(root)}
    with sagemaker(tmp_path_factory.mktemp("log") / "log", *options, **variables) as found:
        yield found


def load(port: ServerPort, model: str, url: str, target: str = "") -> HttpResponse:
    return port.post("/models", {"model_name": model, "url": url}, {TARGET: target} if target else None)


def unload(port: ServerPort, model: str) -> HttpResponse:
    return port.request("DELETE", f"/models/{model}")


def test_a_model_from_its_load_to_its_unload(port: ServerPort, root: Path) -> None:
    assert load(port, "abc", f"{root}/first/model").status == 200
    assert load(port, "def", f"{root}/second/model/").status == 200
    assert loaded(port.get("/models")) == {
        "models": [
            {"modelName": "abc", "modelUrl": f"{root}/first"},
            {"modelName": "def", "modelUrl": f"{root}/second"},
        ]
    }
    assert loaded(port.get("/models/abc")) == {"modelName": "abc", "modelUrl": f"{root}/first"}
    for _ in range(3):
        answer = loaded(port.post("/models/abc/invoke", numbers([1, 2, 3])))
        assert (answer["model_name"], answer["outputs"][0]["data"]) == ("abc", [1, 2, 3])
    for model in ("abc", "def"):
        answer = unload(port, model)
        assert (answer.status, answer.body) == (200, b"")
    assert loaded(port.get("/models/")) == {"models": []}
    assert port.post("/models/abc/invoke", numbers([1])).status == 404
    assert load(port, "abc", f"{root}/first/model").status == 200
    assert loaded(port.post("/models/abc/invoke", numbers([4])))["outputs"][0]["data"] == [4]
    assert unload(port, "abc").status == 200


def test_what_is_not_loaded_is_not_found(port: ServerPort) -> None:
    for method, path in (("GET", "/models/x"), ("DELETE", "/models/x"), ("POST", "/models/x/invoke")):
        answer = port.request(method, path, b"" if method == "POST" else None)
        assert (answer.status, answer.body) == (404, b"")
    assert port.request("DELETE", "/models").status == 404


def test_a_model_is_loaded_once(port: ServerPort, root: Path) -> None:
    assert load(port, "once", f"{root}/first/model").status == 200
    again = load(port, "once", f"{root}/first/model")
    assert again.status == 409
    other = load(port, "other", f"{root}/first/model")
    assert (other.status, other.error) == (409, f"model repository '{root}/first' has already been registered")
    assert load(port, "once", f"{root}/second/model").status == 409
    assert unload(port, "once").status == 200


def test_of_two_loads_at_once_one_is_made(port: ServerPort, root: Path) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(load(port, "both", f"{root}/first/model").status))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(statuses) == [200, 409, 409, 409]
    assert unload(port, "both").status == 200


def test_an_archive_may_hold_the_folder_of_the_model(port: ServerPort, root: Path) -> None:
    assert load(port, "in", f"{root}/inner/model").status == 200
    assert load(port, "deep", f"{root}/deeper/model/sub").status == 200
    assert loaded(port.get("/models/in"))["modelUrl"] == f"{root}/inner/model"
    for model in ("in", "deep"):
        assert loaded(port.post(f"/models/{model}/invoke", numbers([5])))["outputs"][0]["data"] == [5]
        assert unload(port, model).status == 200


def test_an_ensemble_comes_and_goes_with_its_steps(port: ServerPort, root: Path) -> None:
    given = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [2], "data": [8, 9]}]}
    for _ in range(2):
        assert load(port, "ens", f"{root}/together/model").status == 200
        assert loaded(port.post("/models/ens/invoke", given))["outputs"][0]["data"] == [8, 9]
        assert unload(port, "ens").status == 200
        ready = loaded(port.server.post("/v2/repository/index", {"ready": True}))
        assert ready == []


def test_two_archives_may_have_steps_of_one_name(port: ServerPort, root: Path, request: pytest.FixtureRequest) -> None:
    assert load(port, "ens", f"{root}/together/model").status == 200
    second = load(port, "alike", f"{root}/alike/model")
    if request.node.callspec.params["port"]:
        assert second.status == 200
        assert unload(port, "alike").status == 200
    else:
        assert second.status == 400
        assert "model appears in two or more repositories" in second.error
        assert second.error.endswith("start the server with --model-namespacing=true")
    assert unload(port, "ens").status == 200


def test_the_target_model_names_the_model(port: ServerPort, root: Path) -> None:
    assert load(port, "hash1", f"{root}/first/model", "model_3.tar.gz").status == 200
    assert load(port, "hash2", f"{root}/second/model", "team/model.tar.gz").status == 200
    port.server.wait_for("Loading SageMaker TargetModel: model_3.tar.gz")
    for model, name in (("hash1", "model_3.tar.gz"), ("hash2", "hash2")):
        answer = loaded(port.post(f"/models/{model}/invoke", numbers([1]), {TARGET: "anything"}))
        assert answer["model_name"] == name
        assert port.get(f"/models/{model}").status == 200
        assert unload(port, model).status == 200


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is empty"),
        (b"{", "failed to parse the request JSON buffer"),
        (b"[]", "expected a JSON object"),
        (b'{"model_name": 1, "url": "x"}', "Unable to parse 'model_name': expected a text, found int"),
        (b'{"model_name": "a", "url": ["x"]}', "Unable to parse 'url'"),
        (b'{"url": "ROOT/first/model"}', 'Invalid "model_name"'),
        (b'{"model_name": "a/b", "url": "ROOT/first/model"}', 'Invalid "model_name"'),
        (b'{"model_name": "' + b"a" * 1025 + b'", "url": "ROOT/first/model"}', 'Invalid "model_name"'),
        (b'{"model_name": "..", "url": "ROOT/first/model"}', "path traversal"),
        (b'{"model_name": "a"}', "expected a path of the form ROOT/<hash>/model[/<subdir>]"),
        (b'{"model_name": "a", "url": "/dev/model"}', 'Invalid "url"'),
        (b'{"model_name": "a", "url": "/proc/self/model"}', 'Invalid "url"'),
        (b'{"model_name": "a", "url": "ROOT/first/other"}', 'Invalid "url"'),
        (b'{"model_name": "a", "url": "ROOT/x/../../../etc/model"}', 'Invalid "url"'),
        (b'{"model_name": "a", "url": "ROOT/first/model/a/b"}', 'Invalid "url"'),
        (b'{"model_name": "a", "url": "ROOT/f\\u0000/model"}', 'Invalid "url"'),
        (b'{"model_name": "a", "url": "ROOT/gone/model"}', "repository not found"),
        (b'{"model_name": "a", "url": "ROOT/empty/model"}', "holds 0 models"),
        (b'{"model_name": "a", "url": "ROOT/several/model"}', "holds 2 models and 0 ensembles"),
        (b'{"model_name": "a", "url": "ROOT/broken/model"}', "failed to load"),
        (b'{"x": "' + b"x" * 70_000 + b'"}', "expected a JSON object of up to 65536 bytes"),
    ],
)
def test_a_load_that_cannot_be_made(port: ServerPort, root: Path, body: bytes, text: str) -> None:
    answer = port.post("/models", body.replace(b"ROOT", str(root).encode()))
    assert answer.status == 400
    assert text.replace("ROOT", str(root)) in answer.error
    assert loaded(port.get("/models")) == {"models": []}
    assert port.get("/ping").status == 200
    # A failed load leaves nothing that makes the server unready.
    assert port.server.get("/v2/health/ready").status == 200


def test_a_failed_load_can_be_repeated(port: ServerPort, root: Path) -> None:
    folder = root / "mended" / "model"
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(root / "broken" / "model", folder)
    assert load(port, "mended", str(folder)).status == 400
    (folder / "config.pbtxt").write_text(identity())
    assert load(port, "mended", str(folder)).status == 200
    assert unload(port, "mended").status == 200


def test_a_lack_of_memory_has_a_status_of_its_own(port: ServerPort, root: Path) -> None:
    answer = load(port, "room", f"{root}/no_room/model")
    assert answer.status == 507
    assert "CUDA out of memory" in answer.error
    assert load(port, "memory", f"{root}/no_memory/model").status == 200
    answer = port.post("/models/memory/invoke", numbers([1]))
    assert (answer.status, answer.reason) == (507, "Insufficient Storage")
    assert unload(port, "memory").status == 200


def test_errors_of_an_invocation_are_the_callers(port: ServerPort, root: Path) -> None:
    assert load(port, "look", f"{root}/look_up/model").status == 200
    given = {"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [9]}
    answer = port.post("/models/look/invoke", {"inputs": [given]})
    assert answer.status == 400
    assert answer.error
    assert port.post("/models/look/invoke", b"{").status == 400
    assert port.post("/models/look/invoke", b"{}", {"Content-Type": f"{BINARY}x"}).status == 400
    assert port.get("/models/look/invoke").status == 405
    assert port.request("DELETE", "/models/look/invoke").status == 405
    assert port.request("PUT", "/models/look", b"").status == 400
    assert port.request("PUT", "/models", b"").status == 400
    assert port.post("/models/look/invoke/more", b"").status == 400
    assert unload(port, "look").status == 200


def test_tensors_behind_the_json_part(port: ServerPort, root: Path) -> None:
    assert load(port, "sums", f"{root}/sums/model").status == 200
    raw = np.arange(16, dtype=np.int32).tobytes()
    inputs = [
        {"name": n, "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}
        for n in ("INPUT0", "INPUT1")
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    for _ in range(3):
        answer = port.post("/models/sums/invoke", text + raw + raw, {"Content-Type": f"{BINARY}{len(text)}"})
        assert answer.status == 200
        size = int(answer.headers["content-type"].removeprefix(BINARY))
        assert np.array_equal(np.frombuffer(answer.body[size : size + 64], np.int32), 2 * np.arange(16))
    assert unload(port, "sums").status == 200


def test_an_unload_waits_for_what_is_in_flight(port: ServerPort, root: Path) -> None:
    assert load(port, "slow", f"{root}/slow/model").status == 200
    with port.server.connect(port.number) as connection:
        connection.sendall(request_bytes("POST", "/models/slow/invoke", json.dumps(numbers([3])).encode()))
        port.server.wait_in_flight(1)
        assert unload(port, "slow").status == 200
        # The unload was answered after the request.
        connection.setblocking(False)
        answer = read_response(connection)
    assert answer.json()["outputs"][0]["data"] == [3]
    assert unload(port, "slow").status == 404


def test_other_modes_load_nothing(root: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "same", identity())
    with sagemaker(tmp_path / "log", tmp_path / "models", SAGEMAKER_MODELS_DIRECTORY=str(root)) as found:
        answer = load(found, "a", f"{root}/first/model")
        assert answer.status == 400
        assert "not allowed if model control mode is not EXPLICIT" in answer.error


def test_a_served_name_is_not_taken(root: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "same", identity())
    options = (EXPLICIT, "--load-model=same", tmp_path / "models")
    with sagemaker(tmp_path / "log", *options, SAGEMAKER_MODELS_DIRECTORY=str(root)) as found:
        assert load(found, "same", f"{root}/first/model").status == 409
        assert loaded(found.server.infer("same", numbers([1])))["outputs"][0]["data"] == [1]
        assert found.server.get("/v2/health/ready").status == 200


def test_only_folders_below_the_one_of_sagemaker_are_loaded_by_default(root: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "same", identity())
    with sagemaker(tmp_path / "log", EXPLICIT, tmp_path / "models") as found:
        answer = load(found, "a", f"{root}/first/model")
        assert answer.status == 400
        assert answer.error.endswith("expected a path of the form /opt/ml/models/<hash>/model[/<subdir>]")
