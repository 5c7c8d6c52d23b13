"""What becomes of a server whose repositories or options are wrong, and of those that are unusual but right."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx.parser
import pytest
from tritonclient import grpc as grpcclient

from naiad.testing import RunningServer, run_to_end, serving, start_server
from support.served_ensembles import I_TO_O, step, write_ensemble
from support.served_models import SUM_AND_DIFFERENCE, identity, numbers, write_model

LOAD_FAILED = "error: creating server: Internal - failed to load all models"
BROKEN = {
    "bad_syntax": "max_batch_size: [",
    "bad_field": 'perferred_name: "x"\n' + identity(),
    "bad_backend": 'backend: "nosuch"',
    "bad_name": 'name: "other"\n' + identity(),
    "bad_dims": identity(dims="0"),
    "bad_batch": identity(max_batch_size=-3),
    "not_yet": identity(extra='runtime: "libtriton_other.so"'),
}


def index(server: RunningServer) -> dict[str, dict[str, Any]]:
    """The first row of each model in the repository index."""
    rows = server.request("POST", "/v2/repository/index", b"").json()
    return {row["name"]: row for row in reversed(rows)}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with every kind of broken model beside good ones, in two repositories and one folder."""
    folder = tmp_path_factory.mktemp("broken")
    first, second = folder / "first", folder / "second"
    for name, config in BROKEN.items():
        write_model(first, name, config)
    (write_model(first, "bad_onnx", "") / "1" / "model.onnx").write_bytes(b"this is no graph")
    (write_model(first, "empty_onnx", "") / "1" / "model.onnx").write_bytes(b"")
    write_model(first, "missing_file", 'platform: "onnxruntime_onnx"')
    (first / "no_version").mkdir()
    (first / "no_version" / "config.pbtxt").write_text(identity())
    write_model(first, "wrong_without_version", identity(max_batch_size=-3), versions=())
    (first / "empty").mkdir()
    (first / "circle").symlink_to(first)
    (write_model(first, "ring", identity()) / "2").symlink_to(first / "ring")
    (first / "nowhere").symlink_to(folder / "nothing")
    (first / "notes.txt").write_text("not a model")
    (first / ".hidden").mkdir()
    os.mkfifo(write_model(first, "pipe", "") / "config.pbtxt")
    write_model(first, "good", identity())
    write_model(first, "both", identity())
    write_model(second, "both", identity())
    write_model(second, "other", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    repositories = ("--model-repository", first, "--model-repository", second)
    with serving(folder / "log", *repositories, "--exit-on-error", "false") as running:
        yield running


REASONS = {
    "bad_syntax": "max_batch_size",
    "bad_field": "perferred_name",
    "bad_backend": "nosuch",
    "bad_name": "other",
    "bad_dims": "dim",
    "bad_batch": "max_batch_size",
    "not_yet": "runtime",
    "bad_onnx": "model.onnx",
    "empty_onnx": "model.onnx",
    "missing_file": "model.onnx",
    "no_version": "version",
    "wrong_without_version": "max_batch_size",
    "empty": "version",
    "circle": "cycle",
    "ring": "cycle",
    "nowhere": "cannot be followed",
    "pipe": "expected a plain file",
    "both": "model appears in two or more repositories",
}


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_model_says_why_and_is_not_served(broken: RunningServer, name: str) -> None:
    row = index(broken)[name]
    assert row.get("state") == "UNAVAILABLE"
    assert REASONS[name] in row["reason"]
    assert broken.get(f"/v2/models/{name}/ready").status == 400
    assert broken.infer(name, numbers([1])).status in (404, 503)
    assert f"failed to load '{name}'" in broken.log


def test_the_log_names_the_kind_of_an_error(broken: RunningServer) -> None:
    assert "failed to load 'bad_backend' version 1: Invalid argument: " in broken.log
    assert "failed to load 'bad_onnx' version 1: Internal: " in broken.log


def test_the_log_names_the_file_and_line(broken: RunningServer) -> None:
    assert "bad_syntax/config.pbtxt:1: " in broken.log
    assert "bad_field/config.pbtxt:1: " in broken.log


def test_a_wrong_configuration_is_said_before_the_missing_version_folder(broken: RunningServer) -> None:
    reason = index(broken)["wrong_without_version"]["reason"]
    assert "max_batch_size" in reason and "version folder" not in reason
    # Up to the next record: the log has all that is wrong.
    logged = re.search(r"(?ms)failed to load 'wrong_without_version'.*?(?=^[IWE]\d{4} )", broken.log)
    assert logged is not None
    assert re.search(r"config\.pbtxt:\d+: .*max_batch_size.*found no version folder", logged[0], re.DOTALL), logged[0]


def test_good_models_beside_broken_ones_are_served(broken: RunningServer) -> None:
    assert broken.infer("good", numbers([4, 5])).json()["outputs"][0]["data"] == [4, 5]
    assert broken.get("/v2/models/other/ready").status == 200
    found = index(broken)
    assert found["good"]["state"] == found["other"]["state"] == "READY"
    assert found.keys() == {*REASONS, "good", "other"}


def test_a_server_with_a_broken_model_is_live_but_not_ready(broken: RunningServer) -> None:
    assert broken.get("/v2/health/live").status == 200
    answer = broken.get("/v2/health/ready")
    assert (answer.status, answer.body) == (400, b"")
    verbose = broken.get("/v2/health/ready?verbose=true")
    assert verbose.status == 400
    assert "bad_backend" in verbose.error


def test_only_ready_models_are_listed_when_asked(broken: RunningServer) -> None:
    rows = broken.post("/v2/repository/index", {"ready": True}).json()
    assert [(r["name"], r["state"]) for r in rows] == [("good", "READY"), ("other", "READY")]


def test_a_failed_model_ends_the_server(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "good", identity())
    write_model(tmp_path / "models", "bad", 'backend: "nosuch"')
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path / "models")
    assert code == 1
    assert "nosuch" in log
    assert LOAD_FAILED in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_readiness_can_be_lenient(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "bad", 'backend: "nosuch"')
    options = ("--exit-on-error=false", "--strict-readiness=false")
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", *options) as server:
        assert server.get("/v2/health/ready").status == 200
        assert server.get("/v2/models/bad/ready").status == 400


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of one file, without a folder or a configuration."""
    folder = tmp_path_factory.mktemp("bare")
    onnx.save(onnx.parser.parse_model(SUM_AND_DIFFERENCE), folder / "sums.onnx")
    with serving(folder / "log", folder / "sums.onnx") as running:
        yield running


@pytest.mark.slow
def test_a_bare_model_file(bare: RunningServer) -> None:
    config = bare.get("/v2/models/sums/config").json()
    assert config["max_batch_size"] > 1
    row = {"datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    answer = bare.infer("sums", {"inputs": [{"name": "INPUT0", **row}, {"name": "INPUT1", **row}]})
    assert answer.json()["outputs"][0]["data"] == [2 * i for i in range(16)]


@pytest.mark.slow
def test_defaults_are_no_reason_for_a_warning(bare: RunningServer) -> None:
    assert re.search(r"^I\d{4} ", bare.log, re.MULTILINE)
    assert re.findall(r"^[WE]\d{4} .*", bare.log, re.MULTILINE) == []


@pytest.mark.slow
def test_positional_repository_and_model_folder(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "one", identity())
    alone = write_model(tmp_path / "elsewhere", "two", identity())
    with serving(tmp_path / "log", tmp_path / "models", alone) as server:
        assert index(server).keys() == {"one", "two"}
        assert server.get("/v2/health/ready").status == 200


@pytest.mark.slow
def test_no_model_at_all(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        assert server.get("/v2/health/ready").status == 200
        assert server.request("POST", "/v2/repository/index", b"").json() == []
        assert server.get("/v2/models/stats").json() == {"model_stats": []}
        assert server.infer("any", numbers([1])).status == 404
        assert f"no model is served: found none in '{tmp_path}/models', expected a folder for each" in server.log


def test_a_repository_in_the_root_of_a_disk(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "good", identity())
    (tmp_path / "models" / "lost+found").mkdir(mode=0o700)
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert [model["name"] for model in server.post("/v2/repository/index", {}).json()] == ["good"]
        assert "lost+found" not in server.log


@pytest.mark.slow
def test_an_ensemble_without_a_version_folder(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", identity(max_batch_size=8))
    folder = write_ensemble(tmp_path / "models", "e", step("m", *I_TO_O))
    (folder / "1").rmdir()
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        given = {"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [7]}
        assert server.infer("e", {"inputs": [given]}).json()["outputs"][0]["data"] == [7]
        assert server.get("/v2/models/e").json()["versions"] == ["1"]


@pytest.mark.slow
def test_a_configuration_by_name(tmp_path: Path) -> None:
    model = write_model(tmp_path / "models", "m", identity())
    (model / "configs").mkdir()
    (model / "configs" / "large.pbtxt").write_text(identity(max_batch_size=32))
    write_model(tmp_path / "models", "plain", identity())
    options = ("--model-config-name", "large")
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", *options) as server:
        assert server.get("/v2/models/m/config").json()["max_batch_size"] == 32
        assert server.get("/v2/models/plain/config").json()["max_batch_size"] == 0


def test_a_file_of_another_program_beside_the_configuration(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models", "m", identity())
    (folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "vocab_size": 50257}')
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert server.infer("m", numbers([5])).json()["outputs"][0]["data"] == [5]
        assert "config.json is not read, since config.pbtxt is there" in server.log


def test_a_file_of_another_program_in_the_place_of_a_configuration(tmp_path: Path) -> None:
    """The configuration is completed from the model, as in the reference."""
    folder = write_model(tmp_path / "models", "m", "", graph=SUM_AND_DIFFERENCE)
    (folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "vocab_size": 50257}')
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert server.get("/v2/models/m/config").json()["backend"] == "onnxruntime"
        assert "m/config.json is not read: it has no field of a model configuration" in server.log


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_an_unreadable_folder(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "good", identity())
    closed = write_model(tmp_path / "models", "closed", identity())
    closed.chmod(0)
    try:
        with serving(tmp_path / "log", tmp_path / "models", "--exit-on-error=false") as server:
            assert "Permission denied" in index(server)["closed"]["reason"]
            assert server.get("/v2/models/good/ready").status == 200
    finally:
        closed.chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["--model-repository", "/nosuch/models"], "'/nosuch/models' does not exist", id="no repository"),
        pytest.param(["/nosuch/model.onnx"], "/nosuch/model.onnx. No such file or folder", id="no model file"),
        pytest.param(["--model-repository", "{file}"], "is a file", id="a file for a repository"),
        pytest.param(["{file}"], "has the suffix '.doc'", id="a file that is no model"),
        pytest.param(
            ["--model-repository", "ftp://host/models"], "ftp:// storage is not supported", id="remote repository"
        ),
    ],
)
def test_paths_that_cannot_be_served(tmp_path: Path, arguments: list[str], text: str) -> None:
    file = tmp_path / "file.doc"
    file.write_text("")
    code, log = run_to_end(tmp_path / "log", *(a.format(file=file) for a in arguments))
    assert code == 1
    assert text in log
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_missing_repository_without_exit_on_error(tmp_path: Path, mode: str) -> None:
    write_model(tmp_path / "models", "good", identity())
    missing = tmp_path / "missing"
    options = ("--model-repository", missing, "--exit-on-error=false", f"--model-control-mode={mode}")
    server = start_server(tmp_path / "log", "--model-repository", tmp_path / "models", *options)
    try:
        server.wait_for("it goes on without models")
        server.wait_listening()
        assert server.get("/v2/health/live").status == 400
        assert server.get("/v2/health/ready").status == 400
        assert f"'{missing}' does not exist" in server.get("/v2/health/ready?verbose=true").error
        assert server.get("/v2").json()["name"] == "triton"
        with grpcclient.InferenceServerClient(server.grpc_url) as client:
            assert not client.is_server_live()
            assert not client.is_server_ready()
            assert client.get_server_metadata().name == "triton"
        assert " is ready: " not in server.log
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("service", ["HTTP", "GRPC", "Metrics"])
def test_a_port_that_is_in_use(tmp_path: Path, service: str) -> None:
    (tmp_path / "models").mkdir()
    option = f"--{service.lower()}-port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path / "models", option, port)
    assert code == 1
    assert f"failed to start {service} service: Unavailable - Socket '127.0.0.1:{port}' already in use" in log
    assert option in log


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        pytest.param(["--http-port", "abc"], ['Bad option: "--http-port"', "abc"], id="not a number"),
        pytest.param(["--http-port", "70000"], ['"--http-port"', "70000", "65535"], id="too large a port"),
        pytest.param(["--http-prot", "1"], ["--http-prot", "--http-port"], id="unknown option"),
        pytest.param(["--http-max-input-size", "0"], ["must be greater than 0"], id="no input"),
        pytest.param(["--model-control-mode", "polling"], ["polling", "poll"], id="no such mode"),
        pytest.param(["--log-format", "xml"], ["xml", "ISO8601"], id="log format"),
        pytest.param(["--metrics-port", "8000"], ["same address and port"], id="one port for both"),
        pytest.param(["--log-file", "/nosuch/folder/log"], ["/nosuch/folder/log"], id="log file"),
        pytest.param(["--http-address", "not an address"], ["not an address"], id="address"),
    ],
)
def test_bad_options_end_with_one_line(tmp_path: Path, arguments: list[str], texts: list[str]) -> None:
    (tmp_path / "models").mkdir()
    repository = ["--model-repository", str(tmp_path / "models")]
    code, log = run_to_end(tmp_path / "log", *repository, *arguments, ports=False)
    assert code == 1
    for text in texts:
        assert text in log
    assert "Traceback" not in log
    assert len(log.splitlines()) <= 6


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--http-port", "--grpc-port", "--metrics-port"])
def test_a_port_in_use(tmp_path: Path, option: str) -> None:
    (tmp_path / "models").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, log = run_to_end(tmp_path / "log", tmp_path / "models", option, port)
    assert code == 1
    assert str(port) in log
    assert option in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_the_port_of_a_server_that_ended_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert server.get("/v2/health/live").status == 200
    with serving(tmp_path / "again", tmp_path / "models", "--http-port", server.http) as again:
        assert again.http == server.http
