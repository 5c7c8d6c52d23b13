"""Python models in a real server: answers, errors, and processes that die."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import run_to_end, wait_until
from support.overload_server import wait_held
from support.python_models import DOUBLES, MISBEHAVES, REPEATS, Client, client_of, write_python_model

READY_S = 15.0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of one server with all models."""
    folder = tmp_path_factory.mktemp("python")
    models = folder / "models"
    write_python_model(models, "doubles", DOUBLES)
    write_python_model(models, "batches", DOUBLES, "max_batch_size: 8 dynamic_batching { }", count=2)
    write_python_model(models, "misbehaves", MISBEHAVES)
    write_python_model(models, "repeats", REPEATS, "model_transaction_policy { decoupled: true }")
    with client_of(models, folder / "log") as found:
        yield found


@pytest.mark.slow
def test_small_and_large_tensors(client: Client) -> None:
    for size in (1, 16, 5_000, 8_192, 150_000, 2_500_000):
        x = np.random.default_rng(size).random((1, size), np.float32)
        for _ in range(3):
            assert np.array_equal(client.infer_array("doubles", x), 2 * x)


def test_many_callers_at_once(client: Client) -> None:
    def ask(n: int) -> bool:
        return bool(np.array_equal(client.infer("batches", n, n + 1), [[2 * n, 2 * n + 2]]))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(400)))
    (found,) = client.grpc.get_inference_statistics("batches").model_stats
    assert found.inference_count == 400
    assert found.inference_stats.success.count == 400
    assert found.inference_stats.fail.count == 0


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (
            4,
            "for model 'misbehaves_0_0', message: SystemExit: the model has had enough",
        ),
        (5, "Expected a list in the execute return, found type '<class 'NoneType'>'."),
    ],
)
def test_what_execute_does_wrong_is_told(client: Client, what: int, text: str) -> None:
    with pytest.raises(InferenceServerException, match="INTERNAL") as caught:
        client.infer("misbehaves", what)
    assert text in str(caught.value)
    assert client.infer("misbehaves", 0)[0, 0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "how"), [(1, "killed by SIGKILL"), (2, "exit code 3"), (3, "killed by SIGSEGV"), (7, "a last word")]
)
def test_a_process_that_dies_costs_only_its_own_request(client: Client, what: int, how: str) -> None:
    with pytest.raises(InferenceServerException, match="UNAVAILABLE") as caught:
        client.infer("misbehaves", what)
    assert "Stub process 'misbehaves_0_0' is not healthy." in str(caught.value)
    assert how in str(caught.value)
    assert client.infer("doubles", 1)[0, 0] == 2
    # A request that comes while the process is started again waits for it.
    assert client.infer("misbehaves", 0)[0, 0] == 0
    wait_until(lambda: client.grpc.is_model_ready("misbehaves"), READY_S, "the model is ready again")


@pytest.mark.slow
def test_a_killed_process_shows_in_readiness_and_comes_back(client: Client) -> None:
    wait_until(client.grpc.is_server_ready, READY_S, "all models are ready")
    for process in client.children():
        process.kill()
    wait_until(lambda: not client.grpc.is_model_ready("doubles"), READY_S, "the model is not ready")
    wait_until(client.grpc.is_server_ready, READY_S, "all models are ready again")
    assert client.infer("doubles", 3)[0, 0] == 6
    assert len(client.children()) == 5


def test_a_decoupled_model_answers_any_number_of_times(client: Client) -> None:
    answers: Queue[Any] = Queue()
    client.grpc.start_stream(lambda result, error: answers.put((result, error)))
    x = np.array([3, 7], np.float32)
    given = tritonclient.grpc.InferInput("X", x.shape, "FP32")
    given.set_data_from_numpy(x)
    client.grpc.async_stream_infer("repeats", [given], enable_empty_final_response=True)
    found = [answers.get(timeout=10) for _ in range(4)]
    client.grpc.stop_stream()
    assert all(error is None for _, error in found)
    assert [result.as_numpy("Y").tolist() for result, _ in found[:3]] == [[n, n] for n in range(3)]
    finals = [result.get_response().parameters["triton_final_response"].bool_param for result, _ in found]
    assert finals == [False, False, False, True]


@pytest.mark.slow
def test_a_caller_that_gives_up_frees_the_queue_at_once(client: Client) -> None:
    with ThreadPoolExecutor(2) as pool:
        sleeping = pool.submit(client.infer, "misbehaves", 6, client_timeout=2.0)
        wait_held(client.server, 1)
        with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
            client.infer("misbehaves", 0, client_timeout=0.5)
        with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
            sleeping.result()
    # The model sleeps on; nothing else can end it.
    for process in client.children():
        process.kill()
    wait_until(client.grpc.is_server_ready, READY_S, "all models are ready again")
    assert client.infer("misbehaves", 0)[0, 0] == 0


@pytest.mark.slow
def test_no_process_outlives_the_server(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "doubles", DOUBLES, count=3)
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        assert client.infer("doubles", 1)[0, 0] == 2
        children = client.children()
        assert len(children) == 3
        client.server.signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(children, 10)
        assert alive == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("class Other: pass", "TritonPythonModel"),
        ("def broken(: pass", "SyntaxError"),
        ("class TritonPythonModel:\n    def initialize(self, args): raise ValueError('no luck')", "no luck"),
        ("import os\nprint('on the way out', flush=True)\nos._exit(9)", "on the way out"),
        (
            "import os\nclass TritonPythonModel:\n    def initialize(self, args): os.kill(os.getpid(), 9)",
            "Stub process 'broken_0_0' is not healthy. It ended while it started: killed by SIGKILL",
        ),
        ("import no_such_module", "no_such_module"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path, source: str, text: str) -> None:
    write_python_model(tmp_path / "models", "broken", source)
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path / "models")
    assert code == 1
    assert "failed to load 'broken'" in log
    assert text in log


@pytest.mark.slow
def test_settings_are_checked(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    for setting, text in (
        ("shm-default-byte-size=1024", "shm-default-byte-size can't be smaller than 1 MiB"),
        ("stub-timeout-seconds=soon", "expected a whole number from 1 on"),
    ):
        arguments = ("--model-repository", tmp_path / "models", f"--backend-config=python,{setting}")
        code, log = run_to_end(tmp_path / "log", *arguments)
        assert code == 1
        assert text in log


def test_a_long_id_is_refused(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="16383"):
        client.infer("doubles", 1, request_id="x" * 20_000)
    assert client.infer("doubles", 1, request_id="x" * 16_383)[0, 0] == 2


@pytest.mark.slow
def test_a_model_completes_its_own_configuration(tmp_path: Path) -> None:
    source = (
        DOUBLES
        + """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config
"""
    )
    write_python_model(tmp_path / "models", "completes", source, more="", tensors="")
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        assert client.infer("completes", 1)[0, 0] == 2
        config = client.grpc.get_model_config("completes").config
        assert config.max_batch_size == 4
        assert config.HasField("dynamic_batching")
        assert [(i.name, list(i.dims)) for i in config.input] == [("X", [-1])]


CHANGES_THE_DICTIONARY = (
    DOUBLES
    + """
    @staticmethod
    def auto_complete_config(config):
        found = config.as_dict()
        found["input"].append({"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "allow_ragged_batch": True})
        found["output"].append({"name": "Y", "data_type": "TYPE_FP32", "dims": -1})
        found["max_batch_size"] = 4
        found["SCHEDULER"] = {}
        return config
"""
)


@pytest.mark.parametrize("scheduler", ["dynamic_batching", "sequence_batching"])
def test_what_a_model_changes_in_the_dictionary_of_its_configuration_counts(tmp_path: Path, scheduler: str) -> None:
    source = CHANGES_THE_DICTIONARY.replace("SCHEDULER", scheduler)
    write_python_model(tmp_path / "models", "completes", source, more="", tensors="")
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        config = client.grpc.get_model_config("completes").config
        assert config.WhichOneof("scheduling_choice") == scheduler
        assert [(i.name, i.allow_ragged_batch) for i in config.input] == [("X", True)]
        assert config.max_batch_size == 4


def test_a_completion_does_not_change_the_scheduler(tmp_path: Path) -> None:
    source = CHANGES_THE_DICTIONARY.replace("SCHEDULER", "sequence_batching").replace(
        "return config", 'del found["dynamic_batching"]; return config'
    )
    write_python_model(tmp_path / "models", "completes", source, more="dynamic_batching {}", tensors="")
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path / "models")
    assert code == 1
    assert "returned sequence_batching, but the configuration has dynamic_batching" in log


@pytest.mark.slow
def test_a_model_class_from_another_file_may_complete_the_configuration(tmp_path: Path) -> None:
    elsewhere = (
        DOUBLES
        + """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
"""
    )
    write_python_model(tmp_path / "models", "imports", "from elsewhere import *\n", more="", tensors="")
    (tmp_path / "models" / "imports" / "1" / "elsewhere.py").write_text(elsewhere)
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        assert [i.name for i in client.grpc.get_model_config("imports").config.input] == ["X"]
