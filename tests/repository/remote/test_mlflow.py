"""Models of MLflow, from a server that speaks the endpoints of its REST API that are used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from naiad.errors import InvalidArgumentError, ModelLoadError, OptionError, StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.agents.call import Action, AgentCall
from naiad.repository.agents.mirror import AgentMirror
from naiad.repository.agents.mlflow import MlflowAgent
from naiad.repository.catalog import Obtained, fetched, open_catalog
from naiad.repository.remote.repository import RemoteModel
from support.s3_server import BUCKET, S3, Faked
from support.web_folder import Answer, WebFolder, web_folder

pytest_plugins = ["support.s3_fixture"]

MLMODEL = """\
artifact_path: model
flavors:
  onnx: {data: model.onnx, onnx_version: 1.16.0}
  python_function: {loader_module: mlflow.onnx}
"""
ARTIFACTS = "api/2.0/mlflow-artifacts/artifacts"


class Tracking:
    """The state of an MLflow server: versions of the model ``iris`` and one run, all with the files of ``folders``."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, bytes]] = {
            "1/a/artifacts/model": {"MLmodel": MLMODEL.encode(), "model.onnx": b"onnx-a", "conda.yaml": b"x"},
            "1/b/artifacts/model": {"MLmodel": MLMODEL.encode(), "model.onnx": b"onnx-b", "model.onnx.data": b"w"},
        }
        self.champion = "1"
        self.uris = {"1": "mlflow-artifacts:/1/a/artifacts/model", "2": "mlflow-artifacts:/1/b/artifacts/model"}

    def answer(self, path: str) -> Answer:
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        found = self._find(unquote(parts.path), query)
        return (404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST"}') if found is None else (200, found)

    def _find(self, path: str, query: dict[str, str]) -> bytes | None:
        if path.startswith(f"{ARTIFACTS}/"):
            folder, _, name = path.removeprefix(f"{ARTIFACTS}/").rpartition("/")
            return self.folders.get(folder, {}).get(name)
        if path == ARTIFACTS:
            files = self.folders.get(query["path"])
            listed = [{"path": n, "is_dir": False, "file_size": len(b)} for n, b in (files or {}).items()]
            return json.dumps({"files": listed}).encode()
        method = path.removeprefix("api/2.0/mlflow/")
        if method == "runs/get" and query["run_id"] == "a":
            return json.dumps({"run": {"info": {"artifact_uri": "mlflow-artifacts:/1/a/artifacts"}}}).encode()
        if query.get("name") != "iris":
            return None
        if method == "model-versions/get-download-uri" and query["version"] in self.uris:
            return json.dumps({"artifact_uri": self.uris[query["version"]]}).encode()
        if method == "registered-models/alias" and query["alias"] == "champion":
            return json.dumps({"model_version": {"version": self.champion}}).encode()
        if method == "registered-models/get":
            versions = [{"version": "1", "current_stage": "Production"}, {"version": "2", "current_stage": "None"}]
            return json.dumps({"registered_model": {"latest_versions": versions}}).encode()
        return None


@pytest.fixture
def tracking() -> Tracking:
    return Tracking()


@pytest.fixture
def web(tracking: Tracking, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebFolder]:
    with web_folder() as found:
        found.other = tracking.answer
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{found.port}")
        for name in ("TOKEN", "USERNAME", "PASSWORD"):
            monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
        yield found


def obtain(uri: str, mirror: Path) -> Obtained:
    found = open_catalog([RemoteUri(uri)], [], str(mirror), 0)
    (model,) = found.outline(is_whole=True).remote.values()
    return fetched(model)


def files(obtained: Obtained) -> dict[str, bytes]:
    place = obtained.source.directory
    assert place is not None
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("uri", "name", "expected"),
    [
        ("models:/iris/1", "iris", {"1/model.onnx": b"onnx-a"}),
        ("models:/iris/2", "iris", {"2/model.onnx": b"onnx-b", "2/model.onnx.data": b"w"}),
        ("models:/iris/latest", "iris", {"2/model.onnx": b"onnx-b", "2/model.onnx.data": b"w"}),
        ("models:/iris/Production", "iris", {"1/model.onnx": b"onnx-a"}),
        ("models:/iris@champion", "iris", {"1/model.onnx": b"onnx-a"}),
        ("runs:/a/model", "model", {"1/model.onnx": b"onnx-a"}),
        ("mlflow-artifacts:/1/b/artifacts/model", "model", {"1/model.onnx": b"onnx-b", "1/model.onnx.data": b"w"}),
    ],
)
def test_addresses(web: WebFolder, tmp_path: Path, uri: str, name: str, expected: dict[str, bytes]) -> None:
    found = obtain(uri, tmp_path)
    assert found.source.name == name
    assert files(found) == expected


def test_an_alias_that_moves_is_a_change(web: WebFolder, tracking: Tracking, tmp_path: Path) -> None:
    catalog = open_catalog([RemoteUri("models:/iris@champion")], [], str(tmp_path), 0)

    def present() -> RemoteModel:
        ((_, models, problem),) = catalog.remote_places()
        assert models is not None, problem
        return models["iris"]

    before = present()
    assert present().files == before.files
    tracking.champion = "2"
    after = present()
    assert after.files != before.files
    assert files(fetched(after)) == {"2/model.onnx": b"onnx-b", "2/model.onnx.data": b"w"}
    web.is_down = True
    ((uri, models, problem),) = catalog.remote_places()
    assert (str(uri), models, "503" in problem) == ("models:/iris@champion", None, True)


def test_a_start_without_the_server(web: WebFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = files(obtain("models:/iris/2", tmp_path))
    web.is_down = True
    assert files(obtain("models:/iris/2", tmp_path)) == first
    assert "comes from the mirror" in caplog.text
    with pytest.raises(StoreUnreachableError, match="does not have it either"):
        obtain("models:/iris/1", tmp_path)


@pytest.mark.slow
def test_files_in_a_bucket(
    web: WebFolder, tracking: Tracking, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in tracking.folders["1/b/artifacts/model"].items():
        s3.put(f"mlflow/1/b/{name}", body)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
    tracking.uris["2"] = f"s3://{BUCKET}/mlflow/1/b"
    assert files(obtain("models:/iris/2", tmp_path)) == {"2/model.onnx": b"onnx-b", "2/model.onnx.data": b"w"}
    s3.fault = lambda asked: Faked(status=503)
    assert files(obtain("models:/iris/2", tmp_path)).keys() == {"2/model.onnx", "2/model.onnx.data"}


def test_only_files_of_backends_are_served(web: WebFolder, tracking: Tracking, tmp_path: Path) -> None:
    tracking.folders["1/a/artifacts/model"]["MLmodel"] = b"flavors: {spacy: {}, python_function: {}}"
    with pytest.raises(StoreError, match="has the flavors spacy, python_function, expected one of onnx, pytorch"):
        obtain("models:/iris/1", tmp_path)


@pytest.mark.parametrize(
    ("mlmodel", "words"),
    [
        (b"flavors: [", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"flavors: 3", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"flavors: {onnx: {data: ../../secret}}", "names '../../secret', which is not there"),
        (b"flavors: {onnx: []}", "expected one of onnx"),
    ],
)
def test_files_that_make_no_sense(
    web: WebFolder, tracking: Tracking, tmp_path: Path, mlmodel: bytes, words: str
) -> None:
    tracking.folders["1/a/artifacts/model"]["MLmodel"] = mlmodel
    with pytest.raises(StoreError, match=words):
        obtain("models:/iris/1", tmp_path)


@pytest.mark.parametrize("uri", ["models:/nobody/1", "models:/iris/9", "models:/iris@nobody", "runs:/zzz/model"])
def test_what_is_not_there(web: WebFolder, tmp_path: Path, uri: str) -> None:
    with pytest.raises(StoreError, match="MLflow has no such model, version or run"):
        obtain(uri, tmp_path)


@pytest.mark.parametrize("place", ["file:///tmp/x", "dbfs:/x", "/local/path", "ftp://x/y"])
def test_files_in_places_that_cannot_be_reached(web: WebFolder, tracking: Tracking, tmp_path: Path, place: str) -> None:
    tracking.uris["1"] = place
    with pytest.raises(StoreError, match="which cannot be read from here"):
        obtain("models:/iris/1", tmp_path)


@pytest.mark.parametrize("body", [b"[]", b"no json", b"{}", b'{"artifact_uri": 3.5}'])
def test_answers_that_make_no_sense(web: WebFolder, tmp_path: Path, body: bytes) -> None:
    web.other = lambda path: (200, body)
    with pytest.raises(StoreError):
        obtain("models:/iris/1", tmp_path)


@pytest.mark.parametrize("uri", ["models:/", "models:/iris", "runs:/a", "models:/a/b/c", "mlflow-artifacts:/.."])
def test_addresses_that_name_no_model(web: WebFolder, tmp_path: Path, uri: str) -> None:
    with pytest.raises(OptionError, match="names no model of MLflow"):
        obtain(uri, tmp_path)


def test_a_server_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(OptionError, match="needs an MLflow server, MLFLOW_TRACKING_URI is ''"):
        obtain("models:/iris/1", tmp_path)


def test_a_token_is_sent_and_not_shown(web: WebFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    web.other = lambda path: (403, b"")
    with pytest.raises(ModelLoadError, match="needs other credentials") as raised:
        obtain("models:/iris/1", tmp_path)
    assert web.authorization == "Bearer s3cret"
    assert "s3cret" not in str(raised.value)


def flavored(tracking: Tracking, about: str, **contents: bytes) -> None:
    """Give version 1 other files, whose names have ``__`` for "/" and a last ``_`` for the dot."""
    names = {name.replace("__", "/")[::-1].replace("_", ".", 1)[::-1]: body for name, body in contents.items()}
    tracking.folders["1/a/artifacts/model"] = {"MLmodel": f"flavors: {{{about}}}".encode(), **names}


@pytest.mark.parametrize(
    ("about", "stored", "served"),
    [
        ("xgboost: {data: model.ubj}", "model_ubj", "1/xgboost.ubj"),
        ("xgboost: {data: model.json}", "model_json", "1/xgboost.json"),
        ("sklearn: {pickled_model: model.skops}", "model_skops", "1/model.skops"),
        ("sklearn: {pickled_model: model.pkl}", "model_pkl", "1/model.joblib"),
    ],
)
def test_files_of_flavors(
    web: WebFolder, tracking: Tracking, tmp_path: Path, about: str, stored: str, served: str
) -> None:
    flavored(tracking, about, **{stored: b"content"})
    assert files(obtain("models:/iris/1", tmp_path)) == {served: b"content"}


class AgentLoad:
    """The calls that a load makes of the agent ``mlflow``, in the folder of a model."""

    def __init__(self, folder: Path, **parameters: str) -> None:
        self.folder = folder / "mine"
        self.folder.mkdir()
        (self.folder / "config.pbtxt").write_text("max_batch_size: 4")
        self.mirror = AgentMirror(str(folder / "mirror"))
        self._target = folder / "target"
        self._agent = MlflowAgent(self.mirror.open())
        self._parameters = parameters

    def act(self, action: Action) -> Path | None:
        return self._agent.act(AgentCall(action, "mine", self.folder, self._parameters, self._new_folder))

    def _new_folder(self) -> Path:
        self._target.mkdir()
        return self._target


def test_an_agent_puts_versions_beside_each_other(web: WebFolder, tmp_path: Path) -> None:
    load = AgentLoad(tmp_path, model="models:/iris/1, models:/iris/2", flavor="onnx")
    found = load.act(Action.LOAD)
    assert found is not None
    shown = {
        str(p.relative_to(found)): p.read_bytes()
        for v in found.iterdir()
        for p in ([v] if v.is_file() else v.iterdir())
    }
    assert shown == {
        "config.pbtxt": b"max_batch_size: 4",
        "1/model.onnx": b"onnx-a",
        "2/model.onnx": b"onnx-b",
        "2/model.onnx.data": b"w",
    }
    load.act(Action.UNLOAD_COMPLETE)
    load.mirror.close()


def test_an_agent_takes_the_whole_model_for_pyfunc(web: WebFolder, tmp_path: Path) -> None:
    load = AgentLoad(tmp_path, model="models:/iris@champion", flavor="pyfunc")
    found = load.act(Action.LOAD)
    assert found is not None
    assert (found / "1" / "logged_model" / "model.onnx").read_bytes() == b"onnx-a"
    compile((found / "1" / "model.py").read_text(), "model.py", "exec")
    load.act(Action.LOAD_FAIL)
    load.mirror.close()


@pytest.mark.parametrize(
    ("parameters", "kind", "text"),
    [
        ({}, InvalidArgumentError, "names 0 models, expected 1 to 16"),
        ({"model": "models:/iris/1", "color": "red"}, InvalidArgumentError, "has no parameter 'color'"),
        ({"model": "s3://bucket/model"}, InvalidArgumentError, "'s3://bucket/model' is no model of MLflow"),
        ({"model": "/etc"}, InvalidArgumentError, "is no model of MLflow"),
        ({"model": "models:/iris/1,models:/iris@champion"}, ModelLoadError, "is version 1, of which model"),
        ({"model": "models:/iris/1", "flavor": "spacy"}, StoreError, "expected spacy: it is one of onnx, pytorch"),
        ({"model": "models:/iris/9"}, StoreError, "MLflow has no such model"),
    ],
)
def test_what_an_agent_refuses(
    web: WebFolder, tmp_path: Path, parameters: dict[str, str], kind: type[Exception], text: str
) -> None:
    load = AgentLoad(tmp_path, **parameters)
    with pytest.raises(kind, match=text):
        load.act(Action.LOAD)
    load.mirror.close()
