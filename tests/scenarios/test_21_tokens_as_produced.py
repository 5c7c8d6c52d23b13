"""A model that answers word by word over HTTP: each word arrives when it is made, and the work ends with the caller."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from statistics import median
from typing import Any

import pytest

from naiad.testing import request_bytes, wait_until
from support.python_models import Client, client_of, write_python_model

PAUSE_S = 0.2
WORDS = 5
# Says its prompt and the time with a pause before each word, until it is told that nobody listens.
SPEAKS = """
import threading

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.speak, args=(request, request.get_response_sender()), daemon=True).start()

    def speak(self, request, sender):
        prompt = pb_utils.get_input_tensor_by_name(request, "PROMPT").as_numpy().item().decode()
        count = pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy().item()
        pause = pb_utils.get_input_tensor_by_name(request, "PAUSE").as_numpy().item()
        length = pb_utils.get_input_tensor_by_name(request, "LENGTH")
        rest = "" if length is None else "x" * length.as_numpy().item()
        said = 0
        while said < count and not sender.is_cancelled():
            time.sleep(pause)
            word = np.array([f"{prompt} {said} {time.time()} {rest}"], object)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("WORD", word)]))
            said += 1
        with open(os.path.join(os.path.dirname(__file__), prompt + ".new"), "w") as file:
            file.write(str(said))
        os.rename(file.name, file.name[:-4])
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = """
input [ { name: "PROMPT" data_type: TYPE_STRING dims: [ 1 ] }, { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] },
    { name: "PAUSE" data_type: TYPE_FP32 dims: [ 1 ] },
    { name: "LENGTH" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]
output [ { name: "WORD" data_type: TYPE_STRING dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }
"""
PATH = "/v2/models/speaks/generate_stream"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("speaks")
    write_python_model(folder / "models", "speaks", SPEAKS, "", tensors=TENSORS)
    with client_of(folder / "models", folder / "log") as found:
        yield found


def asked(prompt: str, count: int, pause_s: float = 0, length: int = 0) -> bytes:
    return json.dumps({"PROMPT": prompt, "LENGTH": length, "parameters": {"COUNT": count, "PAUSE": pause_s}}).encode()


def stream(client: Client, body: bytes) -> Iterator[tuple[float, Any]]:
    """The events of an answer, each with the time at which it arrived."""
    connection = HTTPConnection("127.0.0.1", client.server.http, timeout=20)
    try:
        connection.request("POST", PATH, body)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream; charset=utf-8")
        while line := answer.readline():
            assert line.startswith(b"data: ") and answer.readline() == b"\n"
            yield time.time(), json.loads(line[6:])
    finally:
        connection.close()


def said(client: Client, prompt: str) -> int:
    """How many words the model said to a prompt, once it has stopped."""
    file = client.server.log_file.parent / "models" / "speaks" / "1" / prompt
    wait_until(file.exists, 10, "the model stops")
    return int(file.read_text())


@pytest.mark.slow
def test_each_word_arrives_when_it_is_made(client: Client) -> None:
    delays: list[float] = []
    for index, (arrived, event) in enumerate(stream(client, asked("each", WORDS, PAUSE_S))):
        prompt, number, made = event["WORD"].split()
        assert (prompt, int(number), event["model_name"]) == ("each", index, "speaks")
        delays.append(arrived - float(made))
    assert len(delays) == WORDS
    # Long before the next one is made. One that another process of this machine held up does not count.
    assert median(delays) < PAUSE_S / 2


def test_many_words_at_once_arrive_in_order(client: Client) -> None:
    found = [int(event["WORD"].split()[1]) for _, event in stream(client, asked("many", 2000))]
    assert found == list(range(2000))


def test_a_caller_that_leaves_ends_the_work(client: Client) -> None:
    events = stream(client, asked("leaves", 10_000, 0.005))
    for _ in range(3):
        next(events)
    events.close()
    # All of them would take 50 s.
    assert 3 <= said(client, "leaves") < 10_000
    assert len(list(stream(client, asked("another", 1)))) == 1


def test_a_caller_that_reads_nothing_holds_the_model_up_and_no_other(client: Client) -> None:
    prompt, count = "slow", 1_000_000
    with client.server.connect() as peer:
        before = client.server.memory_bytes()
        peer.sendall(request_bytes("POST", PATH, asked(prompt, count, length=10_000)))
        # Its model has begun, and others are answered as if it were not there.
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            assert len(list(stream(client, asked("beside", 50, length=1000)))) == 50
        assert client.server.memory_bytes() - before < 50 << 20
        # A caller that begins to read after all gets what comes.
        received = 0
        while received < 20 << 20:
            received += len(peer.recv(1 << 20))
    # Nobody is there any more, which the model hears.
    assert 2000 < said(client, prompt) < count
    assert len(list(stream(client, asked("after", 1)))) == 1
