"""``naiad perf advise`` against a server, with models whose best configuration is known."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.test_repeat_and_square import DECOUPLED, REPEAT
from naiad.testing import RunningServer, server_environment, serving
from support.perf_runs import RUN_S
from support.python_models import write_python_model
from support.served_ensembles import chain, write_ensemble
from support.served_models import identity, write_model

# All instances share one device, behind a lock, which takes a request every 8 ms: alone or in a batch, and from however
# many. It has no time between two requests to lose, so its rate is the same in all configurations.
BOUND_BY_A_LOCK = """
import fcntl, struct

class TritonPythonModel:
    def initialize(self, args):
        self.device = open("{device}", "r+b", buffering=0)

    def execute(self, requests):
        responses = []
        for request in requests:
            fcntl.flock(self.device, fcntl.LOCK_EX)
            due, now = struct.unpack("d", os.pread(self.device.fileno(), 8, 0))[0], time.monotonic()
            time.sleep(max(due - now, 0))
            # What came a little late is made up for.
            os.pwrite(self.device.fileno(), struct.pack("d", max(due, now - 0.05) + 0.008), 0)
            fcntl.flock(self.device, fcntl.LOCK_UN)
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""
ONLY_ONE = """
class TritonPythonModel:
    def initialize(self, args):
        if args["model_instance_name"].endswith("_1"):
            raise pb_utils.TritonModelException("there is one device only")

    def execute(self, requests):
        time.sleep(0.004)
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in tensors]
"""
SHAPE = ("--shape", "X:4")
QUICK = ("--rounds", 2, "-p", 120)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("advise")
    models = folder / "models"
    # An execution takes as long whatever its batch holds.
    write_model(models, "sleeps", identity(dims="2", max_batch_size=4, delay_ms=20))
    write_model(models, "alone", identity(delay_ms=20))
    write_model(models, "repeat", REPEAT + DECOUPLED)
    write_ensemble(models, "both", *chain("alone", "alone"), batch=0)
    (folder / "device").write_bytes(bytes(8))
    write_python_model(models, "locked", BOUND_BY_A_LOCK.format(device=folder / "device"), "max_batch_size: 2")
    write_python_model(models, "single", ONLY_ONE, "max_batch_size: 0")
    options = ("--model-repository", models, "--model-control-mode=explicit", "--load-model=*")
    with serving(folder / "log", *options) as running:
        yield running


def config_of(server: RunningServer, model: str) -> Any:
    return server.get(f"/v2/models/{model}/config").json()


@contextmanager
def advising(address: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """``naiad perf advise`` as a process, which ends with the block."""
    command = [sys.executable, "-m", "naiad", "perf", "advise", *map(str, (*words, "-u", address))]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=server_environment()
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def advise(address: str, *words: object) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    with advising(address, *words) as process:
        out, errors = process.communicate(timeout=RUN_S)
    return process.returncode, out, errors


@pytest.mark.slow
def test_batching_and_a_second_instance_gain(server: RunningServer, tmp_path: Path) -> None:
    before = config_of(server, "sleeps")
    file = tmp_path / "advice.json"
    code, out, errors = advise(server.url, "sleeps", *QUICK, "--percentile=95", "--json", file)
    assert code == 0, errors
    assert "Batching: gains: +" in out
    assert "Second instance: gains: +" in out
    assert "Most inferences: batching on, 2 instances, 16 in flight: " in out
    assert config_of(server, "sleeps") == before
    assert "the configuration is back" in errors
    found = json.loads(file.read_text())
    assert found["batching"]["verdict"] == found["second_instance"]["verdict"] == "gains"
    # A batch of four takes as long as one request.
    assert 2 < found["batching"]["gain"] < 5
    assert 0.5 < found["second_instance"]["gain"] < 1.5
    assert len(found["tried"]) == 4
    assert found["tried"][0]["is_served"]
    levels = {tried["name"]: [level["in_flight"] for level in tried["levels"]] for tried in found["tried"]}
    assert levels == {
        "batching off, 1 instance": [1, 2, 16],
        "batching on, 1 instance": [1, 8, 16],
        "batching off, 2 instances": [4, 16],
        "batching on, 2 instances": [16],
    }
    assert all(len(level["rounds"]) == 2 for tried in found["tried"] for level in tried["levels"])


@pytest.mark.slow
def test_neither_gains_over_grpc(server: RunningServer) -> None:
    before = config_of(server, "locked")
    code, out, errors = advise(server.grpc_url, "locked", "-i", "grpc", *SHAPE, "--rounds", 2, "-p", 160)
    assert code == 0, errors
    for change in ("Batching", "Second instance"):
        (line,) = [line for line in out.splitlines() if line.startswith(f"{change}: ")]
        # On a busy machine it may not be sure, but it is never a gain.
        assert line.startswith((f"{change}: gains nothing here: ", f"{change}: unclear: ", f"{change}: costs: ")), out
    assert "Keep what is served: nothing that was tried gains over it" in out
    assert "Most inferences: batching off, 1 instance, 2 in flight: " in out
    assert config_of(server, "locked") == before


@pytest.mark.slow
def test_a_latency_limit_and_a_model_without_batches(server: RunningServer) -> None:
    code, out, errors = advise(server.url, "-m", "alone", "--shape", "INPUT0:2", *QUICK, "--latency-limit", 35)
    assert code == 0, errors
    assert "Batching: not tried: max_batch_size is 0, " in out
    assert "Second instance: gains: +" in out
    # More in flight would wait for those before them.
    assert "Most inferences: 2 instances, 2 in flight: " in out
    assert "from 1 instance to 2 instances with 1 and 2 in flight" in out


@pytest.mark.slow
def test_a_configuration_that_does_not_load_and_one_from_an_earlier_load(server: RunningServer) -> None:
    changed = {**config_of(server, "single"), "parameters": {"note": {"string_value": "from a load request"}}}
    answer = server.post("/v2/repository/models/single/load", {"parameters": {"config": json.dumps(changed)}})
    assert answer.status == 200, answer.body
    before = config_of(server, "single")
    code, out, errors = advise(server.url, "single", *SHAPE, *QUICK)
    assert code == 0, errors
    assert "Second instance: not known: 2 instances: the load of the model 'single' at " in out
    assert "there is one device only" in out
    assert "Keep what is served: nothing that was tried gains over it" in out
    # The repository has another one.
    assert config_of(server, "single") == before
    assert "note" in before["parameters"]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("both", "'both' is an ensemble: it has no instances and no batches of its own"),
        ("repeat", "'repeat' is decoupled: its requests have any number of responses"),
        ("nothing", "unknown model: 'nothing'"),
    ],
)
def test_models_that_no_advice_fits(server: RunningServer, model: str, text: str) -> None:
    code, out, errors = advise(server.url, model)
    assert (code, out) == (99, "")
    assert text in errors
    assert errors.count("error: ") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_puts_the_configuration_back(server: RunningServer, number: signal.Signals) -> None:
    before = config_of(server, "sleeps")
    with advising(server.url, "sleeps", "--rounds", 50, "-p", 100) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "batching on, 1 instance: " in line:
                break
        assert "dynamic_batching" in config_of(server, "sleeps")
        process.send_signal(number)
        out, errors = process.communicate(timeout=RUN_S)
    assert process.returncode == 130, errors
    assert "Interrupted: there is no advice." in out
    assert config_of(server, "sleeps") == before


@pytest.mark.slow
def test_servers_that_load_nothing_and_servers_that_end(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "sleeps", identity(dims="2", max_batch_size=4, delay_ms=5))
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        code, _, errors = advise(server.url, "sleeps")
        assert code == 99
        assert "loads no models on request, which advise needs to try configurations: start it with " in errors
        assert "--model-control-mode=explicit" in errors
    write_model(tmp_path / "models", "gone", identity(dims="2", max_batch_size=4))
    options = ("--model-repository", tmp_path / "models", "--model-control-mode=explicit", "--load-model=*")
    with serving(tmp_path / "log", *options) as server:
        shutil.rmtree(tmp_path / "models" / "gone")
        code, _, errors = advise(server.url, "gone")
        assert (code, errors.count("error: ")) == (99, 1)
        assert "'gone' cannot be loaded with a configuration that comes with the request: the load of " in errors
        assert server.get("/v2/models/gone/ready").status == 200
        with advising(server.url, "sleeps", "--rounds", 50, "-p", 100) as process:
            assert process.stderr is not None
            process.stderr.readline()
            server.kill()
            _, errors = process.communicate(timeout=RUN_S)
    assert process.returncode == 99
    causes = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(causes) == 2, errors
    assert server.url in causes[0]
    assert "the configuration that 'sleeps' had is not back: " in causes[1]
