"""Framework models outside the server's process, on a real server."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc

from naiad.cli import check
from naiad.testing import run_to_end, serving, wait_until
from support import onnx_models
from support.python_models import Client, client_of

GOOD = 'backend: "onnxruntime"\n'


def write_onnx(repository: Path, name: str, way: str = "", text: str = GOOD) -> None:
    """A model Y = 2 X, whose configuration the graph completes."""
    onnx_models.double(repository / name / "1" / "model.onnx")
    more = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}\n' if way else ""
    (repository / name / "config.pbtxt").write_text(text + more)


def maps_onnxruntime(process: int) -> bool:
    """Whether a process has the framework's library."""
    return "onnxruntime_pybind" in Path(f"/proc/{process}/maps").read_text()


def ask(client: Client, model: str) -> list[list[float]]:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    return [[float(v) for v in row] for row in client.infer_array(model, x)]


def test_the_server_itself_imports_no_framework(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_onnx(repository, "own", "process")
    write_onnx(repository, "together", "shared")
    with client_of(repository, tmp_path / "log") as client:
        for model in ("own", "together"):
            assert ask(client, model) == [[2, 4, 6], [8, 10, 12]]
            assert client.grpc.get_model_config(model).config.max_batch_size == 4
        # The framework's number of instances is two.
        assert len(client.children()) == 3
        assert all(maps_onnxruntime(child.pid) for child in client.children())
        assert not maps_onnxruntime(client.server.process.pid)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library keeps what is freed")
@pytest.mark.parametrize("way", ["thread", "process"])
def test_a_loaded_model_takes_little_more_than_its_weights(tmp_path: Path, way: str) -> None:
    layers, channels = 40, 256
    repository = tmp_path / "models"
    onnx_models.convolutions(repository / "large" / "1" / "model.onnx", layers, channels)
    write_onnx(repository, "small", way)
    more = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}\n'
    (repository / "large" / "config.pbtxt").write_text(GOOD + more)
    memory: dict[str, int] = {}
    for model in ("small", "large"):
        only = ("--model-control-mode=explicit", f"--load-model={model}")
        with client_of(repository, tmp_path / f"{model}.log", *only) as client:
            process = client.children()[0] if way == "process" else psutil.Process(client.server.process.pid)
            memory[model] = process.memory_info().rss
    # Before the memory that the load has freed went back it was more than twice the weights.
    assert memory["large"] - memory["small"] < 1.5 * layers * channels * channels * 36


@pytest.mark.slow
def test_a_default_for_all_models(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_onnx(repository, "own")
    write_onnx(repository, "inside", "thread")
    for setting in ("onnxruntime,execution=shared", "execution=shared"):
        with client_of(repository, tmp_path / "log", "--backend-config", setting) as client:
            assert ask(client, "own") == ask(client, "inside") == [[2, 4, 6], [8, 10, 12]]
            assert len(client.children()) == 1


def reasons(repository: Path, log: Path, *arguments: object) -> dict[str, str]:
    """Why each model of a repository is not there."""
    with serving(log, "--model-repository", repository, "--exit-on-error=false", *arguments) as server:
        index = server.index()
    return {str(model["name"]): str(model.get("reason", "")) for model in index}


@pytest.mark.slow
def test_models_that_do_not_load_give_the_same_reasons_in_every_way(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    wrong_dims = (
        'input { name: "X" data_type: TYPE_FP32 dims: 4 } output { name: "Y" data_type: TYPE_FP32 dims: 3 } '
        'backend: "onnxruntime" max_batch_size: 8\n'
    )
    write_onnx(repository, "dims", text=wrong_dims)
    write_onnx(repository, "batch", text=GOOD + "max_batch_size: 9\ninput { name: 'Z' }\n")
    wrong_setting = "parameters { key: 'enable_mem_arena' value { string_value: 'x' } }\n"
    write_onnx(repository, "setting", text=GOOD + wrong_setting)
    write_onnx(repository, "file")
    (repository / "file" / "1" / "model.onnx").write_bytes(b"no model")
    write_onnx(repository, "gone")
    (repository / "gone" / "1" / "model.onnx").unlink()
    (repository / "gone" / "1" / "other.bin").write_bytes(b"")
    found = [
        reasons(repository, tmp_path / "log", "--backend-config", f"execution={way}")
        for way in ("thread", "process", "shared")
    ]
    assert all(found[0].values()), found[0]
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_a_wrong_value_is_an_error_of_the_model(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_onnx(repository, "m", "fibre")
    code, log = run_to_end(tmp_path / "log", "--model-repository", repository)
    assert code != 0
    assert 'parameter \'execution\' is "fibre", expected "thread", "process" or "shared"' in log


@pytest.mark.slow
def test_readiness_and_statistics_after_a_kill(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_onnx(repository, "m", "shared")
    with client_of(repository, tmp_path / "log") as client:
        assert ask(client, "m")
        (child,) = client.children()
        child.suspend()
        client.server.process.send_signal(signal.SIGCONT)
        child.kill()
        wait_until(
            lambda: not client.grpc.is_model_ready("m") or child.pid not in _numbers(client), 5, "the kill shows"
        )
        wait_until(lambda: client.grpc.is_model_ready("m"), 10, "the model is ready again")
        assert ask(client, "m")
        (statistics,) = client.grpc.get_inference_statistics("m").model_stats
        assert statistics.inference_count == 4 and statistics.execution_count == 2
        assert statistics.inference_stats.compute_infer.ns > 0


def _numbers(client: Client) -> set[int]:
    return {child.pid for child in client.children()}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["process", "shared"])
def test_a_killed_server_leaves_no_process_behind(tmp_path: Path, way: str) -> None:
    repository = tmp_path / "models"
    write_onnx(repository, "m", way)
    with client_of(repository, tmp_path / "log") as client:
        assert ask(client, "m")
        numbers = _numbers(client)
        client.server.kill()
        wait_until(lambda: not any(psutil.pid_exists(n) for n in numbers), 5, "the processes of the models end")


@pytest.mark.slow
def test_a_model_with_a_call_that_gives_up(tmp_path: Path) -> None:
    """The answer that comes later belongs to nobody and does no harm."""
    repository = tmp_path / "models"
    write_onnx(repository, "m", "process", GOOD + "instance_group { count: 1 kind: KIND_CPU }\n")
    with client_of(repository, tmp_path / "log") as client:
        (child,) = client.children()
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(tritonclient.grpc.InferenceServerException, match="Deadline"):
            client.infer_array("m", np.ones((1, 3), np.float32), client_timeout=0.3)
        os.kill(child.pid, signal.SIGCONT)
        assert ask(client, "m") == [[2, 4, 6], [8, 10, 12]]


@pytest.mark.slow
def test_naiad_check_finds_the_same_and_leaves_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = tmp_path / "models"
    write_onnx(repository, "good")
    write_onnx(repository, "gone")
    (repository / "gone" / "1" / "model.onnx").write_bytes(b"no model")
    found = []
    # Other tests may share servers that are there all along.
    before = set(psutil.Process().children())
    for way in ("thread", "process", "shared"):
        settings = {"": {"execution": way}}
        assert check.run([repository], disable_auto_complete=False, model_config_name="", backend_config=settings) == 1
        found.append(capsys.readouterr().out)
    assert "2 models checked: 1 ok, 1 with problems" in found[0]
    assert found[0] == found[1] == found[2]
    assert set(psutil.Process().children()) <= before
