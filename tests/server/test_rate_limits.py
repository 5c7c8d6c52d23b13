"""``--rate-limit=execution_count`` on a server: models that share resources, and what a load is told that cannot be."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import RESPONSE_S, run_to_end, wait_until
from server.test_frontend_processes import FRONTS, one_connection_each
from server.test_frontend_processes import ask as ask_at
from support.python_models import HEAD, TENSORS, Client, client_of

# Notes in a file when it begins and ends; dies when it is told to.
NOTES = """
class TritonPythonModel:
    def initialize(self, args):
        self.notes = os.path.join(os.path.dirname(args["model_repository"]), "notes")

    def note(self, text):
        with open(self.notes, "a") as notes:
            notes.write(text)

    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        self.note("(")
        if x.flat[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        self.note(")")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)]) for request in requests]
"""
MODE = ("--rate-limit", "execution_count")
EXPLICIT = ("--model-control-mode", "explicit", "--load-model", "*")


def write(repository: Path, name: str, limits: str, count: int = 1) -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(HEAD + NOTES)
    group = f"instance_group [ {{ count: {count} kind: KIND_CPU rate_limiter {{ {limits} }} }} ]"
    (folder / "config.pbtxt").write_text(f'backend: "python" max_batch_size: 8 {TENSORS} {group}')


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("one", "other"):
        write(tmp_path / "repository", name, 'resources [ { name: "R" count: 2 } ]', count=2)
    return tmp_path / "repository"


@pytest.fixture
def client(repository: Path, tmp_path: Path) -> Iterator[Client]:
    with client_of(repository, tmp_path / "log", *MODE, "--rate-limit-resource", "r:3", *EXPLICIT) as found:
        yield found


def ask(client: Client, count: int = 40) -> None:
    with ThreadPoolExecutor(8) as callers:
        models = ["one", "other"] * (count // 2)
        answers = list(callers.map(lambda model: client.infer(model, 1).tolist(), models))
    assert answers == [[[2]]] * count


@pytest.mark.slow
def test_instances_of_all_models_share_what_there_is(client: Client, repository: Path) -> None:
    ask(client)
    notes = (repository / "notes").read_text()
    assert notes == "()" * 40


@pytest.mark.slow
def test_requests_to_several_front_ends_share_what_there_is(repository: Path, tmp_path: Path) -> None:
    options = (*MODE, "--rate-limit-resource", "r:3", *FRONTS)
    with client_of(repository, tmp_path / "log", *options) as client, ThreadPoolExecutor(2) as callers:

        def alternate(connection: socket.socket, names: Sequence[str]) -> list[int]:
            given = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
            return [ask_at(connection, f"/v2/models/{name}/infer", given).status for name in names]

        # The model of one front end runs while the other model has its request from the other front end.
        with one_connection_each(client.server) as connections:
            asked = [
                callers.submit(alternate, connection, names * 5)
                for connection, names in zip(connections, (("one", "other"), ("other", "one")), strict=True)
            ]
            assert [one.result(RESPONSE_S) for one in asked] == [[200] * 10] * 2
    assert (repository / "notes").read_text() == "()" * 20


@pytest.mark.slow
def test_a_process_that_dies_gives_back_what_it_held(client: Client, repository: Path) -> None:
    for model in ("one", "other", "one"):
        with pytest.raises(InferenceServerException):
            client.infer(model, -1)
        wait_until(lambda: client.grpc.is_server_ready(), 20, "its processes are there again")
    (repository / "notes").unlink()
    ask(client)
    assert (repository / "notes").read_text() == "()" * 40


@pytest.mark.slow
def test_a_load_that_wants_more_than_there_is_fails_and_what_serves_goes_on(client: Client, repository: Path) -> None:
    write(repository, "large", 'resources [ { name: "R" count: 4 } ]')
    answer = client.server.post("/v2/repository/models/large/load", {})
    assert answer.status == 400
    assert (
        'Resource count for "R" is limited to 3 which will prevent scheduling of one or more model instances, the '
        "minimum required count is 4"
    ) in answer.error
    write(repository, "shared", 'resources [ { name: "R" count: 1 global: true } ]')
    answer = client.server.post("/v2/repository/models/shared/load", {})
    assert (
        'Resource "R" is present as both global and device-specific resource in the model configuration.'
    ) in answer.error
    write(repository, "one", 'resources [ { name: "R" count: 4 } ]', count=1)
    assert "the minimum required count is 4" in client.server.post("/v2/repository/models/one/load", {}).error
    ask(client)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [("1", "8"), ("8", "1")])
def test_of_a_resource_that_is_given_twice_the_smaller_count_holds(
    repository: Path, tmp_path: Path, counts: Sequence[str]
) -> None:
    given = [f"--rate-limit-resource={name}:{count}" for name, count in zip("Rr", counts, strict=True)]
    code, log = run_to_end(tmp_path / "log", "--model-repository", repository, *MODE, *given)
    assert code == 1
    assert "is limited to 1 which will prevent scheduling" in log


@pytest.mark.slow
def test_models_come_change_and_go_while_others_are_asked(client: Client, repository: Path) -> None:
    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(ask, client, 100)
        for limits, count in (('resources [ { name: "R" count: 1 } ]', 3), ("priority: 2", 1)):
            write(repository, "third", limits, count)
            assert client.server.post("/v2/repository/models/third/load", {}).status == 200
            assert client.infer("third", 1).tolist() == [[2]]
        assert client.server.post("/v2/repository/models/third/unload", {}).status == 200
        asked.result(60)


@pytest.mark.slow
def test_without_the_option_the_section_is_passed_over(repository: Path, tmp_path: Path) -> None:
    write(repository, "shared", 'resources [ { name: "R" count: 1 global: true } ]')
    with client_of(repository, tmp_path / "log", "--rate-limit-resource", "R:1") as client:
        ask(client)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rate-limit", "on"], "Invalid option value. Got on"),
        (
            ["--rate-limit-resource", "R"],
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or",
        ),
        (["--rate-limit-resource", "R:1:2:3"], "'<resource_name>:<count>'. Got R:1:2:3"),
        (["--rate-limit-resource", "R:-1"], "out of bound"),
        (["--rate-limit-resource", "R:x"], "Invalid option value. Got x"),
        (["--rate-limit-resource", ":1"], "option format is"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path, *arguments)
    assert code != 0
    assert text in log
