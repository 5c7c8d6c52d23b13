"""A real server that follows its repositories, with callers that never stop asking."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, run_to_end, serving, wait_until
from support.python_models import DOUBLES, write_python_model
from support.served_models import identity, numbers, write_model
from support.traffic import Traffic

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")
REFUSED = "explicit model load / unload is not allowed if polling is enabled"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path / "models", "m", identity(extra='parameters { key: "tag" value { string_value: "first" } }'))
    return tmp_path / "models"


@pytest.fixture
def server(repository: Path, tmp_path: Path) -> Iterator[RunningServer]:
    with serving(tmp_path / "log", repository, *POLL) as running:
        yield running
        assert "Traceback" not in running.log


def states(server: RunningServer) -> dict[str, str]:
    rows = server.index()
    return {f"{row['name']}:{row.get('version', '')}": row.get("state", "") for row in rows}


def tag(server: RunningServer) -> Any:
    config = server.get("/v2/models/m/config").json()
    return config["parameters"]["tag"]["string_value"]


@pytest.mark.slow
def test_a_model_comes_changes_and_goes_under_traffic(server: RunningServer, repository: Path) -> None:
    with Traffic(server, "m", http=1, grpc=1) as traffic:
        write_model(repository, "new", identity())
        wait_until(lambda: states(server).get("new:1") == "READY", 10, "the new model is loaded")
        config = repository / "m" / "config.pbtxt"
        text = config.read_text()
        config.write_text("nonsense {")
        wait_until(lambda: "nonsense" in server.log, 10, "the broken change is seen")
        assert states(server)["m:1"] == "READY"
        assert server.get("/v2/health/ready").status == 200
        config.write_text(text.replace("first", "second"))
        wait_until(lambda: tag(server) == "second", 10, "the change is loaded")
        (repository / "m" / "2").mkdir()
        wait_until(lambda: states(server).get("m:2") == "READY", 10, "the new version is loaded")
        shutil.rmtree(repository / "new")
        wait_until(lambda: states(server).get("new:1") == "UNAVAILABLE", 10, "the model is unloaded")
        assert traffic.answered
    assert traffic.failures == []
    assert server.get("/v2/health/ready").status == 200
    assert server.infer("m", numbers([3])).json()["outputs"][0]["data"] == [3]


@pytest.mark.slow
def test_a_model_that_is_still_being_copied_is_left_alone(server: RunningServer, repository: Path) -> None:
    """For as long as its file grows, no load begins."""
    folder = repository / "late"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(identity())
    probe = repository / "probe"
    with (folder / "1" / "weights").open("wb") as file:

        def grow() -> bool:
            file.write(b"x" * 1000)
            file.flush()
            return server.get("/v2/models/probe/ready").status == 200

        # Another model, which is whole from its beginning, shows that looks come and loads begin.
        for number in range(2):
            write_model(repository, "probe", identity(max_batch_size=number))
            wait_until(grow, 10, "the other model is loaded")
            shutil.rmtree(probe)
            wait_until(lambda: not grow(), 10, "the other model is unloaded")
        assert "loading: late" not in server.log
    wait_until(lambda: server.get("/v2/models/late/ready").status == 200, 10, "the whole model is loaded")


def test_the_api_refuses_to_load_and_unload(server: RunningServer) -> None:
    for what in ("load", "unload"):
        answer = server.post(f"/v2/repository/models/m/{what}", {})
        assert (answer.status, answer.error[: len(REFUSED)]) == (503, REFUSED)
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        for call in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match=REFUSED) as caught:
                call("m")
            assert caught.value.status() == "StatusCode.UNAVAILABLE"


@pytest.mark.slow
def test_a_python_model_is_replaced_by_its_next_source(server: RunningServer, repository: Path) -> None:
    folder = write_python_model(repository, "code", DOUBLES)
    question = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [2]}]}

    def answer() -> Any:
        found = server.infer("code", question)
        return found.json()["outputs"][0]["data"][0] if found.status == 200 else None

    wait_until(lambda: answer() == 4, 20, "the model is loaded")
    file = folder / "1" / "model.py"
    file.write_text(file.read_text().replace("2 * x", "3 * x"))
    wait_until(lambda: answer() == 6, 20, "the other source is loaded")


@pytest.mark.slow
def test_without_seconds_nothing_is_looked_at(repository: Path, tmp_path: Path) -> None:
    options = ("--model-control-mode=POLL", "--repository-poll-secs=0")
    with serving(tmp_path / "log", repository, *options) as server:
        assert server.post("/v2/repository/models/m/load", {}).error.startswith(REFUSED)


@pytest.mark.slow
def test_a_broken_model_at_the_start_ends_the_server_unless_told_otherwise(repository: Path, tmp_path: Path) -> None:
    write_model(repository, "bad", 'backend: "nosuch"')
    code, log = run_to_end(tmp_path / "log", repository, *POLL)
    assert code == 1
    assert "failed to load all models; with --exit-on-error=false the server goes on with what did load (1)" in log
    with serving(tmp_path / "other", repository, *POLL, "--exit-on-error=false") as server:
        assert server.get("/v2/health/ready").status == 400
        (repository / "bad" / "config.pbtxt").write_text(identity())
        wait_until(lambda: server.get("/v2/health/ready").status == 200, 10, "the repaired model is loaded")


FAILS_TWICE = """
class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "tries"), "a") as file:
            file.write("x")
            if file.tell() < 3:
                raise RuntimeError("not this time")
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for request in requests]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("count", "code"), [(1, 1), (2, 0)])
def test_a_load_that_fails_is_tried_again(tmp_path: Path, count: int, code: int) -> None:
    write_python_model(tmp_path / "models", "code", FAILS_TWICE)
    options = (tmp_path / "models", f"--model-load-retry-count={count}")
    if code:
        ended, log = run_to_end(tmp_path / "log", *options)
        assert ended == code
    else:
        with serving(tmp_path / "log", *options) as server:
            assert server.get("/v2/models/code/ready").status == 200
            log = server.log
    assert (tmp_path / "tries").read_text() == "x" * (count + 1)
    assert f"could not load 'code' version 1, {count} more tries, the next in 0.1 s: " in log


@pytest.mark.slow
def test_a_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "bad", identity(max_batch_size=-1))
    code, log = run_to_end(tmp_path / "log", tmp_path / "models", "--model-load-retry-count=50")
    assert code == 1
    assert "more tries" not in log


AGENT = """
import time

class RepositoryAgent:
    def act(self, call):
        if call.parameters.get("says") == "nothing":
            time.sleep(60)
        if call.parameters.get("says") == "no":
            raise ValueError("not this model")
"""


def with_agent(says: str) -> str:
    agent = f'agents {{ name: "mine" parameters {{ key: "says" value: "{says}" }} }}'
    return identity(extra=f"model_repository_agents {{ {agent} }}")


@pytest.mark.slow
def test_agents_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "agents" / "mine").mkdir(parents=True)
    (tmp_path / "agents" / "mine" / "agent.py").write_text(AGENT)
    write_model(tmp_path / "models", "good", with_agent("yes"))
    write_model(tmp_path / "models", "bad", with_agent("no"))
    options = ("--repoagent-directory", tmp_path / "agents", "--exit-on-error=false")
    with serving(tmp_path / "log", tmp_path / "models", *options) as server:
        assert server.get("/v2/models/good/ready").status == 200
        rows = {row["name"]: row for row in server.index()}
        assert rows["bad"]["reason"] == "the repository agent 'mine' refuses model 'bad': not this model"
        agents = server.get("/v2/models/good/config").json()["model_repository_agents"]["agents"]
        assert agents == [{"name": "mine", "parameters": {"says": "yes"}}]


@pytest.mark.slow
def test_a_stop_does_not_wait_for_an_agent_that_never_answers(tmp_path: Path) -> None:
    (tmp_path / "agents" / "mine").mkdir(parents=True)
    (tmp_path / "agents" / "mine" / "agent.py").write_text(AGENT)
    write_model(tmp_path / "models", "good", identity())
    options = ("--repoagent-directory", tmp_path / "agents", *POLL, "--exit-timeout-secs=1")
    with serving(tmp_path / "log", tmp_path / "models", *options) as server:
        write_model(tmp_path / "models", "late", with_agent("nothing"))
        server.wait_for("model 'late' is new in its repository")
        assert server.infer("good", numbers([1])).status == 200
        server.signal()
        assert server.wait_exit(10) == 1
