"""``--rate-limit=execution_count`` and sequences: they hold resources like all others, and stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving, wait_until
from support.served_sequences import GRAPH, HEAD, STATE, TOTALS, Client, as_json, controls, write

pytestmark = pytest.mark.slow

# Notes in a file when it begins and ends what ``TOTALS`` does.
NOTED = TOTALS.replace(
    "        return [self.answer(request) for request in requests]",
    """        with open(os.environ["NOTES"], "ab", 0) as notes:
            notes.write(b"(")
            time.sleep(0.002)
            answers = [self.answer(request) for request in requests]
            notes.write(b")")
        return answers""",
)
PLAIN = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        with open(os.environ["NOTES"], "ab", 0) as notes:
            notes.write(b"(")
            time.sleep(0.002)
            notes.write(b")")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.full((1, 1), 7, np.int32))]) for r in requests]
"""
)
LIMITED = 'rate_limiter { resources [ { name: "R" count: 2 } ] }'


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    repository = tmp_path / "repository"
    folders = [
        write(repository, "direct", f"direct {{ }} {controls()}", NOTED, count=2),
        write(repository, "oldest", f"oldest {{ max_candidate_sequences: 3 }} {controls()}", NOTED, count=2),
        write(repository, "late", f"oldest {{ max_queue_delay_microseconds: 3000 }} {controls()}", NOTED, count=2),
        write(repository, "onnx_direct", f"direct {{ }} {STATE}", GRAPH, "onnxruntime"),
        write(repository, "plain", "", PLAIN),
    ]
    for folder in folders:
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace("kind: KIND_CPU", f"kind: KIND_CPU {LIMITED}"))
    with serving(tmp_path / "log", repository, "--rate-limit=execution_count", "--rate-limit-resource=R:3") as running:
        yield running
        assert "Exception in callback" not in running.log
        assert "could not be given its turn" not in running.log


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    found = Client(server)
    yield found
    found.close()


def sequences(
    client: Client, first: int, models: tuple[str, ...] = ("direct", "oldest", "late", "onnx_direct")
) -> None:
    values = [1, 2, 3, 4, 5]
    with ThreadPoolExecutor(12) as pool:
        runs = [pool.submit(client.run, "grpc", models[n % len(models)], first + n, values) for n in range(24)]
        plain = [pool.submit(client.step, "http", "plain", 0, 1) for _ in range(24)]
        assert [run.result(60) for run in runs] == [[1, 3, 6, 10, 15]] * 24
        assert [run.result(60) for run in plain] == [7] * 24


def test_one_instance_of_all_models_runs_at_a_time(server: RunningServer, client: Client, tmp_path: Path) -> None:
    sequences(client, 1)
    notes = (tmp_path / "notes").read_text()
    assert len(notes) >= 60
    assert notes == "()" * (len(notes) // 2)


def test_a_process_that_dies_gives_back_what_it_held(server: RunningServer, client: Client, tmp_path: Path) -> None:
    for number, model in enumerate(("direct", "oldest", "direct")):
        with pytest.raises(InferenceServerException):
            client.step("grpc", model, 1000 + number, -9, True)
        wait_until(partial(works, client, model), 20, "a sequence begins again")
    (tmp_path / "notes").unlink()
    sequences(client, 2000)
    notes = (tmp_path / "notes").read_text()
    assert notes == "()" * (len(notes) // 2)


def works(client: Client, model: str) -> bool:
    try:
        return client.run("grpc", model, 999, [1, 1]) == [1, 2]
    except InferenceServerException:
        return False


def test_sequences_that_are_given_up_leave_their_turn_to_others(server: RunningServer, client: Client) -> None:
    for number in range(10):
        with server.connect() as peer:
            for model in ("direct", "oldest", "late"):
                body = as_json(5000, 5000 + number, True)
                head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
                peer.sendall(head.encode() + body)
    sequences(client, 6000)
