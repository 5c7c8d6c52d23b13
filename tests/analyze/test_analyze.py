"""``naiad analyze`` as a command, with a server that it starts, one that runs, and models in its own process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from naiad.testing import RunningServer, server_environment, serving, wait_until
from support.certificates import new_authority
from support.interrupted_imports import interrupted_import
from support.served_ensembles import chain, write_ensemble
from support.served_models import identity, write_model

ROOT = Path(__file__).parents[2]
RUN_S = 100
QUICK: dict[str, Any] = {
    "duration_seconds": 0,
    "window_ms": 40,
    "run_config_search_max_instance_count": 2,
    "run_config_search_max_model_batch_size": 8,
    "run_config_search_max_concurrency": 32,
    "num_configs_per_model": 1,
}
LISTED = {"parameters": {"concurrency": 8}, "model_config_parameters": {"max_batch_size": [2, 8]}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analyze") / "models"
    batching = "dynamic_batching { }"
    write_model(folder, "sleeps", identity(dims="2", max_batch_size=2, delay_ms=4, extra=batching))
    write_model(folder, "other", identity(dims="2", max_batch_size=2, delay_ms=4, extra=batching))
    write_model(folder, "alone", identity(delay_ms=4))
    write_ensemble(folder, "both", *chain("alone", "alone"), batch=0)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[RunningServer]:
    with serving(models.parent / "log", "--model-repository", models, "--model-control-mode=explicit") as running:
        yield running


def start(folder: Path, *words: str, command: str = "profile", **keys: Any) -> subprocess.Popen[str]:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(keys))
    line = [sys.executable, "-m", "naiad", "analyze", command, "-f", str(file), *words]
    environment = server_environment()
    return subprocess.Popen(
        line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(folder: Path, *words: str, command: str = "profile", **keys: Any) -> tuple[int, str, str]:
    with start(folder, *words, command=command, **keys) as process:
        try:
            out, errors = process.communicate(timeout=RUN_S)
        finally:
            process.kill()
    return process.returncode, out, errors


def remote(server: RunningServer, **keys: Any) -> dict[str, Any]:
    metrics = f"http://{server.host}:{server.metrics}/metrics"
    addresses = {"triton_http_endpoint": server.url, "triton_grpc_endpoint": server.grpc_url}
    return {**QUICK, "triton_launch_mode": "remote", **addresses, "triton_metrics_url": metrics, **keys}


def report(folder: Path) -> Any:
    return json.loads((folder / "reports" / "report.json").read_text())


@pytest.mark.slow
def test_a_search_with_a_server_of_its_own(models: Path, tmp_path: Path) -> None:
    code, out, errors = run(tmp_path, **QUICK, model_repository=str(models), profile_models=["sleeps"])
    assert code == 0, errors
    (found,) = report(tmp_path)["profiles"]
    best = found["rows"][0]["trial"]["variants"][0][1]
    # A batch takes as long whatever it holds.
    assert best["max_batch_size"] == 8
    assert found["recommendations"][1]["title"] == "Most throughput"
    assert "Most throughput: sleeps_config_" in out
    assert "left]" in errors
    table = (tmp_path / "results" / "metrics-model-inference.csv").read_text().splitlines()
    assert table[0] == (
        "Model,Batch,Concurrency,Model Config Path,Instance Group,Max Batch Size,Satisfies Constraints,"
        "Throughput (infer/sec),p99 Latency (ms)"
    )
    page = (tmp_path / "reports" / "summary.html").read_text()
    for text in ("Throughput against latency", "Server memory against latency", "Where the time goes", "config.pbtxt"):
        assert text in page
    assert "http://www" not in page and "<script" not in page


@pytest.mark.slow
def test_a_running_server_gets_its_configuration_back(server: RunningServer, tmp_path: Path) -> None:
    settings = remote(server, run_config_search_disable=True, profile_models={"sleeps": LISTED})
    code, _, errors = run(tmp_path, **settings)
    assert code == 0, errors
    assert server.get("/v2/models/sleeps/config").json()["max_batch_size"] == 2
    code, out, errors = run(tmp_path, **settings)
    assert code == 0
    assert "3 measurements of an earlier run can be used again" in errors
    assert "0 in all in 0 s, 3 used again" in out
    code, out, errors = run(tmp_path, "-n", "sleeps_config_0", command="report")
    assert code == 0, errors
    assert "sleeps_config_0" in (tmp_path / "reports/detailed/sleeps_config_0/report.html").read_text()
    code, _, errors = run(tmp_path, "-n", "sleeps_config_9", command="report")
    assert code == 1
    assert "no measurement of 'sleeps_config_9', did you mean 'sleeps_config_" in errors


@pytest.mark.slow
def test_a_server_with_tls_that_analyze_starts(models: Path, tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "root")
    own, client = authority.issue("server", "DNS:localhost"), authority.issue("client")
    server_flags = {"grpc-use-ssl-mutual": "1", "grpc-server-cert": str(own.cert), "grpc-server-key": str(own.key)}
    flags = {
        "ssl-grpc-use-ssl": True,
        "ssl-grpc-root-certifications-file": str(authority.root),
        "ssl-grpc-certificate-chain-file": str(client.cert),
        "ssl-grpc-private-key-file": str(client.key),
    }
    settings: dict[str, Any] = {
        **QUICK,
        "model_repository": str(models),
        "run_config_search_disable": True,
        "triton_server_flags": {**server_flags, "grpc-root-cert": str(authority.root)},
        "profile_models": {"sleeps": LISTED},
    }
    code, _, errors = run(tmp_path, **settings, perf_analyzer_flags=flags)
    assert code == 0, errors
    assert len(report(tmp_path)["profiles"][0]["rows"]) == 3
    wrong = flags | {"ssl-grpc-private-key-file": str(own.key)}
    code, _, errors = run(tmp_path, "-s", "other", **settings, perf_analyzer_flags=wrong)
    assert code == 1
    assert "cannot use the certificate" in errors


@pytest.mark.slow
def test_a_running_server_with_tls_and_keys(models: Path, tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "root")
    own = authority.issue("server")
    words = ("--model-repository", models, "--model-control-mode=explicit", "--http-server-cert", own.cert)
    keys = ("--http-server-key", own.key, "--http-restricted-api=model-repository,inference:x-key=secret")
    with serving(tmp_path / "log", *words, *keys) as running:
        flags = {"ssl-https-ca-certificates-file": str(authority.root), "http-header": "x-key: secret", "shape": "IN:1"}
        settings = remote(running, client_protocol="http", concurrency=2, search_measurements=4)
        settings["triton_http_endpoint"] = f"https://localhost:{running.http}"
        code, _, errors = run(tmp_path, **settings, profile_models={"both": {"perf_analyzer_flags": flags}})
    assert code == 0, errors
    assert report(tmp_path)["profiles"][0]["composing_models"] == ["alone"]


@pytest.mark.slow
def test_a_failed_measurement_is_a_row(server: RunningServer, tmp_path: Path) -> None:
    model = {**LISTED, "model_config_parameters": {"backend": ["identity", "no_such_backend"]}}
    code, out, errors = run(tmp_path, **remote(server, run_config_search_disable=True, profile_models={"other": model}))
    assert code == 0, errors
    assert "1 trials failed, the first with: 'other' is not loaded with" in out
    rows = (tmp_path / "results" / "metrics-model-inference.csv").read_text().splitlines()
    assert "no_such_backend" in rows[-1]


@pytest.mark.slow
def test_an_ensemble_and_models_beside_each_other(server: RunningServer, tmp_path: Path) -> None:
    settings = remote(server, concurrency=2, search_measurements=4)
    flags = {"perf_analyzer_flags": {"shape": "IN:1"}}
    (tmp_path / "a").mkdir()
    code, _, errors = run(tmp_path / "a", **settings, profile_models={"both": flags})
    assert code == 0, errors
    assert report(tmp_path / "a")["profiles"][0]["composing_models"] == ["alone"]
    settings |= {"run_config_profile_models_concurrently_enable": True, "profile_models": ["sleeps", "other"]}
    code, _, errors = run(tmp_path, **settings)
    assert code == 0, errors
    assert len(report(tmp_path)["profiles"][0]["rows"][0]["models"]) == 2


@pytest.mark.slow
def test_an_ensemble_has_a_name_for_each_combination_of_its_steps(
    models: Path, server: RunningServer, tmp_path: Path
) -> None:
    steps = {"alone": {"model_config_parameters": {"instance_group": [{"count": [1, 2], "kind": "KIND_CPU"}]}}}
    written = tmp_path / "written"
    settings = remote(
        server,
        concurrency=2,
        num_configs_per_model=2,
        model_repository=str(models),
        output_model_repository_path=str(written),
        ensemble_composing_models=steps,
        profile_models={"both": {"perf_analyzer_flags": {"shape": "IN:1"}}},
    )
    code, _, errors = run(tmp_path, **settings)
    assert code == 0, errors
    (found,) = report(tmp_path)["profiles"]
    names = {row["names"][0]: row["names"][1] for row in found["rows"]}
    assert names == {
        "both_config_default": "alone_config_default",
        "both_config_0": "alone_config_0",
        "both_config_1": "alone_config_1",
    }
    assert "both_config_0 (alone_config_0), batch size 1" in errors
    code, _, errors = run(tmp_path, "-n", "both_config_1,both_config_0+alone_config_0", command="report")
    assert code == 0, errors
    assert (tmp_path / "reports/detailed/both_config_1/report.html").is_file()
    best = found["ranking"][0].partition(" ")[0]
    with serving(tmp_path / "log", "--model-repository", written) as running:
        assert running.get(f"/v2/models/{best}/ready").status == 200


@pytest.mark.slow
def test_models_in_this_process(models: Path, tmp_path: Path) -> None:
    listed = {"run_config_search_disable": True, "profile_models": {"sleeps": LISTED}, "model_repository": str(models)}
    code, _, errors = run(tmp_path, **{**QUICK, "triton_launch_mode": "c_api", **listed})
    assert code == 0, errors
    (found,) = report(tmp_path)["profiles"]
    assert found["rows"][0]["trial"]["variants"][0][1]["max_batch_size"] == 8


@pytest.mark.slow
def test_an_interrupted_run_leaves_its_measurements(server: RunningServer, tmp_path: Path) -> None:
    with start(tmp_path, **remote(server, profile_models=["sleeps"])) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "sleeps_config_0" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=RUN_S)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "interrupted: the checkpoint 'checkpoints/0.ckpt' has " in errors
    assert server.get("/v2/models/sleeps/config").json()["max_batch_size"] == 2
    assert list((tmp_path / "checkpoints").iterdir()) == [tmp_path / "checkpoints" / "0.ckpt"]
    assert report(tmp_path)["is_interrupted"]


@pytest.mark.slow
def test_an_interrupt_before_the_first_measurement_ends_in_order(tmp_path: Path) -> None:
    # A server that never listens.
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\ntouch started\nexec sleep 60\n")
    program.chmod(0o755)
    (tmp_path / "models").mkdir()
    settings = {**QUICK, "model_repository": "models", "triton_server_path": str(program), "profile_models": ["a"]}
    with start(tmp_path, **settings) as process:
        try:
            wait_until((tmp_path / "started").exists, RUN_S, "the server has started")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=RUN_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors == "interrupted: nothing was measured that the next run could use\n"


def test_an_interrupt_while_modules_are_imported_ends_in_order(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model_repository": "models", "profile_models": ["a"]}))
    line = ["analyze", "profile", "-f", "config.yaml"]
    code, errors = interrupted_import(line, tmp_path, "naiad.analyze.settings.kinds", RUN_S)
    assert code == 130
    assert "interrupted: nothing was measured" in errors
    assert "Traceback" not in errors


def test_a_folder_for_models_that_is_not_empty_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "written" / "other").mkdir(parents=True)
    keys = {"model_repository": "no such folder", "profile_models": ["add"], "output_model_repository_path": "written"}
    code, _, errors = run(tmp_path, **keys)
    assert code == 1
    assert "output_model_repository_path 'written' is not empty: name another folder, or give" in errors


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, "-n", "a_config_0", command="report")
    assert (code, "found no checkpoint 'checkpoints/0.ckpt'" in errors) == (1, True)
    code, _, errors = run(tmp_path, **QUICK, model_repository="missing", profile_models=["a"])
    assert (code, "the model repository 'missing' is no folder" in errors) == (1, True)


@pytest.mark.slow
def test_a_model_that_is_missing_and_a_configuration_that_ends_the_server_leave_the_others(tmp_path: Path) -> None:
    ends = "import os\n\nclass TritonPythonModel:\n    def initialize(self, args):\n        os.kill(os.getppid(), 9)\n"
    text = identity(dims="2", max_batch_size=2, delay_ms=4, extra="dynamic_batching { }")
    (write_model(tmp_path / "models", "sleeps", text) / "1" / "model.py").write_text(ends)
    model = {**LISTED, "model_config_parameters": {"backend": ["python", "identity"]}}
    settings = {"run_config_search_disable": True, "profile_models": {"missing": LISTED, "sleeps": model}}
    code, out, errors = run(tmp_path, **{**QUICK, **settings, "model_repository": "models"})
    assert code == 1
    assert "error: missing: the server that analyze started" in errors
    assert "1 trials failed, the first with: the server was killed by signal 9" in out
    assert len(report(tmp_path)["profiles"][0]["rows"]) == 3


@pytest.mark.slow
def test_a_server_that_is_gone_leaves_a_report(models: Path, tmp_path: Path) -> None:
    with (
        serving(tmp_path / "log", "--model-repository", models, "--model-control-mode=explicit") as running,
        start(tmp_path, **remote(running, profile_models=["sleeps"])) as process,
    ):
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "sleeps_config_0" in line:
                    break
            running.process.kill()
            _, errors = process.communicate(timeout=RUN_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "checkpoints/0.ckpt' has " in errors and "that the next run uses" in errors
    assert report(tmp_path)["profiles"][0]["rows"]


@pytest.mark.slow
def test_a_server_that_loads_nothing_is_told_apart(models: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--model-repository", models) as running:
        settings = remote(running, run_config_search_disable=True, profile_models={"sleeps": LISTED})
        code, _, errors = run(tmp_path, **settings)
    assert code == 1
    assert "start it with --model-control-mode=explicit" in errors
    # Nobody is there any more.
    code, _, errors = run(tmp_path, **settings)
    assert code == 1
    assert "is not reached" in errors or "cannot connect" in errors


def test_help_names_every_option(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "naiad", "analyze", "profile", "--help"]
    out = subprocess.run(line, capture_output=True, text=True, check=True, env=server_environment()).stdout
    assert "-f, --config-file" in out
    assert "--run-config-search-mode" in out
    assert shutil.which("naiad") is None or "Usage: naiad analyze" in out


@pytest.mark.slow
def test_the_quick_example_runs(tmp_path: Path) -> None:
    text = identity(dims="2", max_batch_size=2, delay_ms=4, extra="dynamic_batching { }")
    write_model(tmp_path / "models", "simple", text)
    file = str(ROOT / "examples" / "analyze" / "quick.yaml")
    words = ("--window-ms=40", "--concurrency=4", "--search-measurements=4", "--duration-seconds=0")
    line = [sys.executable, "-m", "naiad", "analyze", "profile", "-f", file, *words]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False, env=server_environment()
    )
    assert done.returncode == 0, done.stderr
    assert "4 measurements of a search over 24 configurations and loads" in done.stdout
