"""What goes wrong while models load: processes that are killed, a full disk, many operations at once."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from naiad.testing import HttpResponse, RunningServer, server_environment, serving, start_server, wait_until
from support.python_models import DOUBLES, write_python_model
from support.served_models import identity, numbers, write_model
from support.traffic import Traffic

EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")
# Says who it is, then loads for a long time.
LOADS_LONG = """
class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(args["model_repository"], "pid"), "w") as file:
            file.write(f"{os.getpid()}.")
        time.sleep(60)
    def execute(self, requests):
        return []
"""
CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
}


def control(server: RunningServer, model: str, what: str, body: object = None) -> HttpResponse:
    return server.post(f"/v2/repository/models/{model}/{what}", body or {})


class Asked:
    """An operation that somebody asks for and waits for."""

    def __init__(self, server: RunningServer, model: str, what: str, body: object = None) -> None:
        self.answer: HttpResponse | None = None
        self.gone = False
        self._thread = threading.Thread(target=self._ask, args=(server, model, what, body))
        self._thread.start()

    def _ask(self, *asked: Any) -> None:
        try:
            self.answer = control(*asked)
        except OSError:
            self.gone = True

    def wait(self) -> HttpResponse:
        self._thread.join(30)
        assert self.answer is not None
        return self.answer

    def wait_gone(self) -> None:
        self._thread.join(30)
        assert self.gone


def worker(folder: Path) -> psutil.Process:
    """The process that loads the model in ``folder`` now."""
    file = folder / "pid"
    wait_until(lambda: file.exists() and file.read_text().endswith("."), 10, "the model loads")
    found = psutil.Process(int(file.read_text().rstrip(".")))
    file.unlink()
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path / "models", "good", identity())
    return tmp_path / "models"


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_loads(repository: Path, tmp_path: Path) -> None:
    folder = write_python_model(repository, "code", DOUBLES)
    with serving(tmp_path / "log", repository, *EXPLICIT) as server:
        before = server.get("/v2/models/code/config").json()
        file = folder / "1" / "model.py"
        source = file.read_text()
        file.write_text("import os, time\n" + LOADS_LONG)
        loading = Asked(server, "code", "load")
        worker(folder).kill()
        answer = loading.wait()
        assert answer.status == 400
        assert answer.error.startswith("load failed for model 'code': version 1 is at UNAVAILABLE state: ")
        question = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [2]}]}
        assert server.infer("code", question).json()["outputs"][0]["data"] == [4]
        assert server.get("/v2/models/code/config").json() == before
        assert server.get("/v2/health/ready").status == 200
        file.write_text(source)
        assert control(server, "code", "load").status == 200


@pytest.mark.slow
def test_a_server_that_is_killed_while_it_loads_leaves_nothing(repository: Path, tmp_path: Path) -> None:
    folder = write_python_model(repository, "code", "import os, time\n" + LOADS_LONG)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    where = {**server_environment(), "TMPDIR": str(temporary)}
    explicit = "--model-control-mode=explicit"
    files = {"config": json.dumps(CONFIG), "file:1/some": base64.b64encode(b"x" * 100_000).decode()}
    server = start_server(tmp_path / "log", repository, explicit, env=where)
    try:
        server.wait_ready()
        assert control(server, "brought", "load", {"parameters": files}).status == 200
        assert len(list(temporary.iterdir())) == 1
        loading = Asked(server, "code", "load")
        process = worker(folder)
        server.signal(signal.SIGKILL)
        server.process.wait()
        loading.wait_gone()
        wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 10, "the worker ends")
    finally:
        server.kill()
    with serving(tmp_path / "again", repository, explicit, env=where) as again:
        assert control(again, "brought", "load", {"parameters": files}).status == 200
        assert len(list(temporary.iterdir())) == 1
    assert not list(temporary.iterdir())


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(repository: Path, tmp_path: Path, little_disk: Path) -> None:
    where = {**server_environment(), "TMPDIR": str(little_disk)}
    agents = tmp_path / "agents"
    (agents / "copies").mkdir(parents=True)
    (agents / "copies" / "agent.py").write_text(
        "class RepositoryAgent:\n"
        "    def act(self, call):\n"
        "        if call.action == 'LOAD':\n"
        "            (call.new_folder() / 'large').write_bytes(b'x' * 1000_000)\n"
    )
    write_model(repository, "copied", identity(extra='model_repository_agents { agents { name: "copies" } }'))
    options = ("--model-control-mode=explicit", "--load-model=good", "--repoagent-directory", agents)
    with serving(tmp_path / "log", repository, *options, env=where) as server:
        large = {"config": json.dumps(CONFIG), "file:1/some": base64.b64encode(b"x" * 1_000_000).decode()}
        for _ in range(3):
            answer = control(server, "good", "load", {"parameters": large})
            assert answer.status == 500
            assert "No space left on device" in answer.error
            assert not list(little_disk.iterdir())
        answer = control(server, "copied", "load")
        assert "No space left on device" in answer.error
        assert not list(little_disk.iterdir())
        assert server.infer("good", numbers([1])).status == 200
        small = {**large, "file:1/some": base64.b64encode(b"x" * 1000).decode()}
        assert control(server, "good", "load", {"parameters": small}).status == 200
    assert not list(little_disk.iterdir())


@pytest.mark.slow
def test_two_loads_and_an_unload_at_once(repository: Path, tmp_path: Path) -> None:
    """Whatever their order, each is answered, and the end is that of the last."""
    with serving(tmp_path / "log", repository, *EXPLICIT) as server:
        config = repository / "good" / "config.pbtxt"
        for round in range(20):
            config.write_text(identity(extra=f'parameters {{ key: "tag" value {{ string_value: "{round}" }} }}'))
            os.utime(config, ns=(0, round))
            kinds = ["load", "load", "unload"]
            random.Random(round).shuffle(kinds)
            asked = [Asked(server, "good", kind) for kind in kinds]
            assert [one.wait().status for one in asked] == [200] * 3
            assert control(server, "good", "load").status == 200
            assert server.infer("good", numbers([round])).json()["outputs"][0]["data"] == [round]
        assert control(server, "good", "unload").status == 200
        assert server.get("/v2/models/good/ready").status == 400
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_a_storm_of_reloads(repository: Path, tmp_path: Path) -> None:
    """Changes good and bad, loads from many sides: no request fails, the end is what lies there, nothing is left."""
    config = repository / "good" / "config.pbtxt"
    with serving(tmp_path / "log", repository, *EXPLICIT) as server:
        threads = psutil.Process(server.process.pid).num_threads()
        with Traffic(server, "good", http=1, grpc=1) as traffic:
            asked: list[Asked] = []
            for round in range(60):
                text = identity(extra=f'parameters {{ key: "tag" value {{ string_value: "{round}" }} }}')
                config.write_text(text if round % 4 else "nonsense {")
                os.utime(config, ns=(0, round))
                asked += [Asked(server, "good", "load") for _ in range(2)]
            answers = [one.wait() for one in asked]
        assert traffic.failures == []
        assert traffic.answered
        assert {answer.status for answer in answers} <= {200, 400, 500, 503}
        assert control(server, "good", "load").status == 200
        found = server.get("/v2/models/good/config").json()["parameters"]["tag"]["string_value"]
        assert found == "59"
        assert server.get("/v2/health/ready").status == 200
        process = psutil.Process(server.process.pid)
        wait_until(lambda: process.num_threads() <= threads + 2, 10, "the threads of earlier copies end")
        assert "Traceback" not in server.log
