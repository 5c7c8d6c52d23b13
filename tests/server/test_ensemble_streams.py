"""Ensembles with decoupled steps whose callers, or whose later steps, are slow: the steps that make responses pause."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from backends.test_repeat_and_square import DECOUPLED, SQUARE
from naiad.testing import request_bytes, wait_until
from server.test_decoupled_streams import MUCH, DeafPeer, number, stream, write_builtin
from server.test_ensembles import ON_CPU
from support.python_models import HEAD, Client, client_of
from support.served_ensembles import step, write_ensemble, write_identity
from support.served_models import tensor, write_model

WAIT_S = 20.0
ONE, ONE_OUT = {"IN": "TYPE_INT32 1"}, {"OUT": "TYPE_INT32 1"}
# Sends blocks of 100 KB from a thread of its own.
BLOCKS = """
import threading
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()[0])
            threading.Thread(target=self.send, args=(request.get_response_sender(), count), daemon=True).start()

    def send(self, sender, count):
        for number in range(count):
            block = pb_utils.Tensor("OUTPUT0", np.full(25_000, number, np.int32))
            sender.send(pb_utils.InferenceResponse([block]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("streams")
    models = folder / "models"
    write_builtin(models, "square", SQUARE + DECOUPLED)
    write_identity(models, "same", batch=0)
    write_identity(models, "slow", batch=0, delay_ms=2)
    given, made = tensor("INPUT0", "TYPE_INT32", "-1"), tensor("OUTPUT0", "TYPE_INT32", "-1")
    config = f'backend: "python" input [ {given} ] output [ {made} ] {ON_CPU} {DECOUPLED}'
    (write_model(models, "blocks", config) / "1" / "model.py").write_text(HEAD + BLOCKS)
    for name, model in (("many", "same"), ("ahead", "slow")):
        steps = [step("square", {"IN": "IN"}, {"OUT": "n"}), step(model, {"INPUT0": "n"}, {"OUTPUT0": "OUT"})]
        write_ensemble(models, name, *steps, inputs=ONE, outputs=ONE_OUT, batch=0)
    write_ensemble(models, "nested", step("many", {"IN": "IN"}, {"OUT": "OUT"}), inputs=ONE, outputs=ONE_OUT, batch=0)
    steps = [step("blocks", {"INPUT0": "IN"}, {"OUTPUT0": "b"}), step("same", {"INPUT0": "b"}, {"OUTPUT0": "OUT"})]
    write_ensemble(models, "large", *steps, batch=0)
    with client_of(models, folder / "log") as found:
        yield found


def is_idle(client: Client) -> bool:
    """No request to the models that make the responses is open."""
    models = ("square", "blocks")
    return all(client.server.statistics(name)["execution_count"] == ended(client, name) for name in models)


def ended(client: Client, model: str) -> int:
    found = client.server.statistics(model)["inference_stats"]
    return int(found["success"]["count"]) + int(found["fail"]["count"])


def pauses(client: Client, model: str = "same") -> bool:
    """A model runs no more for now, although it has run."""
    before = client.server.statistics(model)["inference_count"]
    # Both answers come from one loop, which runs whatever it has to run in between.
    others = [client.server.get("/v2/health/live").status for _ in range(20)]
    return before > 0 and others == [200] * 20 and client.server.statistics(model)["inference_count"] == before


@pytest.mark.slow
@pytest.mark.parametrize("model", ["many", "nested"])
def test_the_steps_of_a_stream_that_nobody_reads_pause(client: Client, model: str) -> None:
    server = client.server
    before, ran, over = server.memory_bytes(), server.statistics("same")["inference_count"], ended(client, model)
    peer = DeafPeer(server.grpc)
    try:
        peer.ask(model, "IN", "INT32", np.array([MUCH], np.int32))
        wait_until(lambda: server.statistics("same")["inference_count"] > ran, WAIT_S, "it has begun")
        wait_until(lambda: pauses(client), WAIT_S, "it pauses")
        assert ended(client, model) == over
        # Others are answered meanwhile.
        with stream(client) as asked:
            asked.ask(model, number(2000))
            assert asked.told() == [2000] * 2000
        assert server.memory_bytes() - before < 50 << 20
    finally:
        peer.socket.close()
    wait_until(lambda: ended(client, model) == over + 2, WAIT_S, "the one that nobody read is over")
    wait_until(lambda: is_idle(client), WAIT_S, "and so are its steps")


def events(peer: socket.socket) -> Iterator[list[bytes]]:
    """The events of an answer, those of each piece as it is read."""
    buffer = b""
    while data := peer.recv(1 << 18):
        *found, buffer = (buffer + data).split(b"\n\n")
        yield [event[event.index(b"data: ") + 6 :] for event in found if b"data: " in event]
        if buffer.endswith(b"0\r\n\r\n"):
            return


@pytest.mark.slow
def test_the_steps_of_events_that_nobody_reads_pause_and_go_on(client: Client) -> None:
    server = client.server
    over = ended(client, "many")
    with server.connect() as peer:
        ran = server.statistics("same")["inference_count"]
        peer.sendall(request_bytes("POST", "/v2/models/many/generate_stream", json.dumps({"IN": MUCH}).encode()))
        wait_until(lambda: server.statistics("same")["inference_count"] > ran, WAIT_S, "it has begun")
        wait_until(lambda: pauses(client), WAIT_S, "it pauses")
        stopped = server.statistics("same")["inference_count"] - ran
        told: list[bytes] = []
        for found in events(peer):
            told += found
            if len(told) > 2 * stopped:
                break
        assert set(told) == {told[0]}
        assert json.loads(told[0])["OUT"] == MUCH
        assert ended(client, "many") == over
    wait_until(lambda: ended(client, "many") == over + 1, WAIT_S, "its caller is gone")
    wait_until(lambda: is_idle(client), WAIT_S, "and so are its steps")


@pytest.mark.slow
def test_a_python_step_waits_for_a_slow_caller(client: Client) -> None:
    count, server = 300, client.server
    before = server.memory_bytes()
    with server.connect() as peer:
        ran = server.statistics("same")["inference_count"]
        peer.sendall(request_bytes("POST", "/v2/models/large/generate_stream", json.dumps({"IN": [count]}).encode()))
        wait_until(lambda: server.statistics("same")["inference_count"] > ran, WAIT_S, "it has begun")
        wait_until(lambda: pauses(client), WAIT_S, "it pauses")
        assert server.statistics("same")["inference_count"] - ran < count // 2
        assert server.memory_bytes() - before < 100 << 20
        told = [json.loads(event)["OUT"] for found in events(peer) for event in found]
    assert [(len(block), *set(block)) for block in told] == [(25_000, number) for number in range(count)]
    wait_until(lambda: is_idle(client), WAIT_S, "all is over")


@pytest.mark.slow
def test_a_step_that_runs_ahead_of_a_slow_one_waits(client: Client) -> None:
    """More responses than may wait inside an ensemble come, and none is lost."""
    with stream(client) as asked:
        asked.ask("ahead", number(4500))
        assert asked.told() == [4500] * 4500
    wait_until(lambda: is_idle(client), WAIT_S, "all is over")
