"""Many sequences at once while models are loaded again, callers leave, and processes are killed.

Each sequence gets the right totals or a clear error, and in the end every slot is free.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest
import tritonclient.utils

from naiad.testing import RunningServer, request_bytes, serving, wait_until
from support.served_sequences import TOTALS, Client, as_json, controls, write

SECONDS, MOST_SECONDS = 10.0, 60.0
RELOADS = 3
CLEAR = (
    "must specify the START flag",
    "is not healthy",
    "has ended: instance",
    "was cancelled by its caller",
    "has stopped accepting",
    "is not at ready state",
    "has no available versions",
    "no negative numbers",
)
IDLE = "max_sequence_idle_microseconds: 1000000"

pytestmark = pytest.mark.slow


@pytest.fixture(params=["free", "limited"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """With ``limited``, only two of the four instances run at a time."""
    repository, options = tmp_path / "models", ["--model-control-mode=explicit", "--load-model=*"]
    if request.param == "limited":
        options += ["--rate-limit=execution_count", "--rate-limit-resource=R:2"]
    for name, strategy in (("direct", "direct { }"), ("oldest", "oldest { max_candidate_sequences: 3 }")):
        config = write(repository, name, f"{IDLE} {strategy} {controls()}", TOTALS, count=2) / "config.pbtxt"
        limits = 'rate_limiter { resources [ { name: "R" count: 1 } ] }'
        config.write_text(config.read_text().replace("kind: KIND_CPU", f"kind: KIND_CPU {limits}"))
    with serving(tmp_path / "log", repository, *options) as running:
        yield running
        assert "could not be given its turn" not in running.log
        assert "Exception in callback" not in running.log
        assert "Traceback" not in running.log


class Callers:
    """Threads with a sequence after the other, and what became of them."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[n]) for n in range(10)]
        self._threads += [threading.Thread(target=self._hurry, args=[n]) for n in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        chance, client = random.Random(number), Client(self._server)
        way, model = ("http", "grpc", "stream")[number % 3], ("direct", "oldest")[number % 2]
        sequence = number * 100_000
        while not self._end.is_set():
            sequence += 1
            self._sequence(client, way, model, sequence, chance)
        client.close()

    def _sequence(self, client: Client, way: str, model: str, sequence: int, chance: random.Random) -> None:
        length, total = chance.randint(1, 8), 0
        for index in range(length):
            value = -1 if chance.random() < 0.02 else chance.randint(1, 9)
            try:
                found = client.step(way, model, sequence, value, index == 0, index == length - 1)
            except tritonclient.utils.InferenceServerException as error:
                kind = next((text for text in CLEAR if text in str(error)), "")
                if not kind:
                    self.wrong.append(str(error))
                self.outcomes[kind] += 1
                if kind == "no negative numbers" and index:
                    continue
                return
            total += value
            if found != total:
                self.wrong.append(f"sequence {sequence} of {model}: {found} and not {total}")
                return
        self.outcomes["right"] += 1

    def _hurry(self, number: int) -> None:
        """One sequence after the other with the same id, without a wait for the answers between them."""
        chance, model, sequence = random.Random(number), ("direct", "oldest")[number % 2], 80_000_000 + number
        while not self._end.is_set():
            values = [[chance.randint(1, 9) for _ in range(chance.randint(1, 4))] for _ in range(3)]
            with self._server.connect() as peer:
                for one in values:
                    for index, value in enumerate(one):
                        send(peer, model, value, sequence, index == 0, index == len(one) - 1)
                with peer.makefile("rb") as answers:
                    for one in values:
                        self._check(model, one, [read(answers) for _ in one])

    def _check(self, model: str, values: list[int], answers: list[dict[str, Any]]) -> None:
        total, goes_on = 0, True
        for value, answer in zip(values, answers, strict=True):
            total += value
            if error := answer.get("error"):
                goes_on = False
                if not any(text in error for text in CLEAR):
                    self.wrong.append(error)
            elif goes_on and answer["outputs"][0]["data"] != [total]:
                self.wrong.append(f"{values} of {model} in a hurry: {answer} and not {total}")
        self.outcomes["in a hurry"] += goes_on

    def leave(self, chance: random.Random) -> None:
        """Begin a sequence, send more of it, and go before the answers; others may do so with the same id."""
        model, sequence = chance.choice(("direct", "oldest")), 90_000_000 + chance.randrange(3)
        with self._server.connect() as peer:
            for index in range(3):
                send(peer, model, 2000, sequence, index == 0, chance.random() < 0.5)
            time.sleep(chance.choice((0, 0.002, 0.01)))

    def stop(self) -> None:
        """Let all finish."""
        self._end.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)


def send(peer: socket.socket, model: str, value: int, sequence: int, start: bool, end: bool) -> None:
    body = as_json(value, sequence, start, end)
    peer.sendall(request_bytes("POST", f"/v2/models/{model}/infer", body))


def read(answers: BinaryIO) -> dict[str, Any]:
    """One of the answers that come over a connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = answers.readline()
        assert line, "the connection was closed"
        head += line
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    found: dict[str, Any] = json.loads(answers.read(length))
    return found


def kill_one(server: RunningServer, chance: random.Random) -> None:
    children = psutil.Process(server.process.pid).children()
    if children:
        chance.choice(children).kill()


def reload(server: RunningServer, model: Path) -> bool:
    """Load a model again with other files, as one of which the repository tells; whether it was loaded."""
    file = model / "config.pbtxt"
    text, _, number = file.read_text().partition("# ")
    file.write_text(f"{text}# {int(number or 0) + 1}")
    answer = server.request("POST", f"/v2/repository/models/{model.name}/load", b"{}")
    # A process may be killed while it starts, and many loads may still finish their sequences.
    assert answer.status == 200 or "failed to start" in answer.error or "still finish" in answer.error, answer.error
    return answer.status == 200


def pending(server: RunningServer) -> float:
    lines = server.metrics_page().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("nv_inference_pending_request_count"))


def test_sequences_are_right_or_end_with_a_clear_error(server: RunningServer, tmp_path: Path) -> None:
    callers, chance = Callers(server), random.Random(7)
    began_s, reloads = time.monotonic(), 0
    while (now_s := time.monotonic()) < began_s + SECONDS or (reloads < RELOADS and now_s < began_s + MOST_SECONDS):
        what = chance.random()
        if what < 0.15:
            kill_one(server, chance)
        elif what < 0.3:
            reloads += reload(server, tmp_path / "models" / chance.choice(("direct", "oldest")))
        else:
            callers.leave(chance)
        time.sleep(0.1)
    callers.stop()
    assert callers.wrong == []
    assert reloads >= RELOADS
    assert callers.outcomes["right"] > 50, callers.outcomes
    assert callers.outcomes["in a hurry"] > 50, callers.outcomes
    wait_until(lambda: pending(server) == 0, 20, "nothing waits")
    client = Client(server)
    for model in ("direct", "oldest"):
        wait_until(lambda model=model: works(client, model), 20, f"{model} works again")
        slots = 8 if model == "direct" else 6
        # Only if every slot is free all of them can begin before one ends.
        wait_until(lambda model=model, slots=slots: begins(client, model, slots), 20, f"all slots of {model} are free")
    client.close()


def works(client: Client, model: str) -> bool:
    try:
        return client.run("grpc", model, 99, [1, 2]) == [1, 3]
    except tritonclient.utils.InferenceServerException:
        return False


def begins(client: Client, model: str, slots: int) -> bool:
    """Whether as many sequences as there are slots can be under way together."""
    try:
        for n in range(slots):
            client.step("grpc", model, 1000 + n, n + 1, True)
        return all(client.step("grpc", model, 1000 + n, 1, end=True) == n + 2 for n in range(slots))
    except tritonclient.utils.InferenceServerException:
        return False
