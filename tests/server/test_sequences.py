"""Sequences on a real server, with the clients of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.utils

from naiad.testing import RunningServer, serving, wait_until
from support.served_sequences import Client, as_json, controls, write, write_all

WAYS = ("http", "grpc", "stream")
MODELS = ("direct", "oldest", "python_states", "onnx_direct", "onnx_oldest", "onnx_process", "completed", "warm")
Refused = tritonclient.utils.InferenceServerException


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sequences") / "models"
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    with serving(repository.parent / "log", repository, "--model-control-mode=explicit", "--load-model=*") as running:
        yield running
        assert "Exception in callback" not in running.log
        assert "Traceback" not in running.log


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    found = Client(server)
    yield found
    found.close()


def in_flight(server: RunningServer, model: str) -> int:
    lines = server.metrics_page().splitlines()
    found = [line for line in lines if line.startswith("nv_inference_pending_request_count") and f'"{model}"' in line]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_sequences_side_by_side_have_totals_of_their_own(client: Client, model: str, way: str) -> None:
    with ThreadPoolExecutor(12) as pool:
        runs = [pool.submit(client.run, way, model, 100 + n, [n, 1, 2, 3]) for n in range(12)]
        assert [run.result(60) for run in runs] == [[n, n + 1, n + 3, n + 6] for n in range(12)]
    assert in_flight(client.server, model) == 0


@pytest.mark.parametrize("way", ["http", "grpc", "json"])
def test_ids_of_any_size_are_told_apart(client: Client, way: str) -> None:
    ids = [1, 9, 10, 127, 128, 2**31, 2**53 + 1, 2**62, 2**63 - 1, *([10**19 - 1, 10**19, 2**64 - 1] * (way != "grpc"))]

    def step(sequence: int, value: int, start: bool = False, end: bool = False) -> int:
        if way != "json":
            return client.step(way, "oldest", sequence, value, start, end)
        body = as_json(value, sequence, start, end)
        answer = client.server.request("POST", "/v2/models/oldest/infer", body)
        assert answer.status == 200, answer.body
        return int(json.loads(answer.body)["outputs"][0]["data"][0])

    for first in range(0, len(ids), 6):
        some = ids[first : first + 6]
        assert [step(n, i, start=True) for i, n in enumerate(some, 1)] == [*range(1, len(some) + 1)]
        assert [step(n, 10) for n in some] == [*range(11, len(some) + 11)]
        assert [step(n, 10, end=True) for n in some] == [*range(21, len(some) + 21)]
    with pytest.raises((Refused, AssertionError), match="must specify the START flag"):
        step(ids[0], 1)


def test_a_model_may_call_another_one_for_a_sequence(client: Client) -> None:
    # No more than have a slot: the one instance that calls waits for each answer.
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(client.run, "grpc", "calls", 150 + n, [n, 1, 2]) for n in range(4)]
        assert [run.result(60) for run in runs] == [[n, n + 1, n + 3] for n in range(4)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["named", "onnx_direct"])
def test_ids_may_be_texts(client: Client, model: str, way: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(client.run, way, model, f"user-{n}", [n, 5]) for n in range(1, 5)]
        assert [run.result(60) for run in runs] == [[n, n + 5] for n in range(1, 5)]


@pytest.mark.parametrize("way", WAYS)
def test_an_id_is_of_the_kind_that_the_control_takes(client: Client, way: str) -> None:
    for model, wrong, found, expected in (
        ("direct", "user", "BYTES", "UINT64"),
        ("oldest", "7", "BYTES", "UINT64"),
        ("named", 7, "UINT64", "BYTES"),
    ):
        text = f"control 'CORRID' data-type is '{found}', but model '{model}' expects '{expected}'"
        with pytest.raises(Refused, match=text):
            client.step(way, model, wrong, 1, True)
    assert client.step(way, "direct", 901, 1, True, True) == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_belongs_to_no_sequence_is_refused(client: Client, way: str) -> None:
    with pytest.raises(Refused, match="inference request for sequence 900 to model 'direct' must specify the START"):
        client.step(way, "direct", 900, 1)
    with pytest.raises(Refused, match="must specify a non-zero or non-empty correlation ID"):
        client.step(way, "direct", 0, 1, True)


def test_an_error_of_the_model_is_no_end_of_a_sequence(client: Client) -> None:
    assert client.step("grpc", "oldest", 901, 4, True) == 4
    with pytest.raises(Refused, match="no negative numbers"):
        client.step("grpc", "oldest", 901, -1)
    assert client.step("grpc", "oldest", 901, 5, end=True) == 9


def test_statistics_count_requests_and_not_empty_rows(server: RunningServer, client: Client) -> None:
    before = server.statistics("direct")
    with ThreadPoolExecutor(8) as pool:
        for run in [pool.submit(client.run, "grpc", "direct", 200 + n, [1] * (3 + n)) for n in range(8)]:
            run.result(60)
    after = server.statistics("direct")
    count = sum(3 + n for n in range(8))
    assert after["inference_count"] - before["inference_count"] == count
    success = after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"]
    assert success == count
    assert after["execution_count"] - before["execution_count"] <= count


def test_the_extension_is_told(server: RunningServer) -> None:
    assert "sequence" in server.get("/v2").json()["extensions"]


def test_controls_and_states_are_no_inputs_of_clients(server: RunningServer) -> None:
    found = server.get("/v2/models/onnx_direct").json()
    assert [t["name"] for t in found["inputs"]] == ["INPUT"]
    assert [t["name"] for t in found["outputs"]] == ["OUTPUT"]
    answer = server.infer("onnx_direct", {**json.loads(as_json(1, 902, True)), "outputs": [{"name": "TOTAL_OUT"}]})
    assert (answer.status, answer.error) == (400, "unexpected inference output 'TOTAL_OUT' for model 'onnx_direct'")


def test_a_caller_who_leaves_takes_what_waits_along(server: RunningServer, client: Client) -> None:
    assert client.step("grpc", "oldest", 903, 1, True) == 1
    with server.connect() as peer:
        for value in (500_000, 1):
            body = as_json(value, 903)
            head = f"POST /v2/models/oldest/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            peer.sendall(head.encode() + body)
        wait_until(lambda: in_flight(server, "oldest") == 1, 10, "one of them waits")
    wait_until(lambda: in_flight(server, "oldest") == 0, 10, "nothing waits")
    with pytest.raises(Refused, match="must specify the START flag"):
        client.step("grpc", "oldest", 903, 1)
    assert client.run("grpc", "oldest", 903, [7, 1]) == [7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["http", "grpc"])
def test_torch_models_have_states(server: RunningServer, client: Client, repository: Path, way: str) -> None:
    pytest.importorskip("torch")
    from support.torch_models import Total, save

    name = f"torch_{way}"
    state = 'state [ { input_name: "TOTAL" output_name: "NEXT" data_type: TYPE_INT32 dims: [ 1 ] } ]'
    folder = write(repository, name, f"oldest {{ }} {state}", "", "pytorch")
    save(folder / "1" / "model.pt", Total())
    reload(server, name)
    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(client.run, way, name, 100 + n, [n, 1, 2]) for n in range(6)]
        assert [run.result(60) for run in runs] == [[n, n + 1, n + 3] for n in range(6)]


# Other versions of the models


def reload(server: RunningServer, model: str) -> None:
    assert server.request("POST", f"/v2/repository/models/{model}/load", b"{}").status == 200


def change(repository: Path, model: str, old: str, new: str) -> None:
    file = repository / model / "config.pbtxt"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_sequence_goes_on_when_its_model_is_loaded_again(
    server: RunningServer, client: Client, repository: Path, way: str
) -> None:
    name = f"again_{way}"
    write(repository, name, f"max_sequence_idle_microseconds: 60000000 oldest {{ }} {controls()}")
    reload(server, name)
    assert [client.step(way, name, n, n, True) for n in (1, 2)] == [1, 2]
    change(repository, name, "count: 1", "count: 2")
    reload(server, name)
    assert client.run(way, name, 3, [3, 3]) == [3, 6]
    change(repository, name, "count: 2", "count: 1")
    reload(server, name)
    assert client.step(way, name, 4, 4, True) == 4
    assert [client.step(way, name, n, 10, end=True) for n in (1, 2, 4)] == [11, 12, 14]
    with pytest.raises(Refused, match="START"):
        client.step(way, name, 1, 1)
    wait_until(lambda: server.log.count(f"successfully unloaded '{name}'") == 2, 20, "the others are gone")
    assert server.request("POST", f"/v2/repository/models/{name}/unload", b"{}").status == 200
    wait_until(lambda: server.log.count(f"successfully unloaded '{name}'") == 3, 20, "it does not wait for sequences")


# The process of a model dies


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_a_sequence_ends_with_the_process_that_had_it(server: RunningServer, client: Client, model: str) -> None:
    assert client.step("grpc", model, 910, 1, True) == 1
    with pytest.raises(Refused, match="is not healthy"):
        client.step("grpc", model, 910, -9)
    with pytest.raises(Refused, match="must specify the START flag"):
        client.step("grpc", model, 910, 1)
    wait_until(lambda: _works(client, model), 20, "its slots can be used again")
    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(client.run, "grpc", model, 920 + n, [n, 1]) for n in range(8)]
        assert [run.result(60) for run in runs] == [[n, n + 1] for n in range(8)]


def _works(client: Client, model: str) -> bool:
    try:
        return client.run("grpc", model, 911, [2, 3]) == [2, 5]
    except Refused:
        return False


def test_sequences_of_a_stream_may_be_mixed(client: Client) -> None:
    found: list[Any] = []
    for value in range(4):
        for n in range(1, 4):
            found.append(client.step("stream", "direct", 930 + n, n, value == 0, value == 3))
    assert found == [n * (value + 1) for value in range(4) for n in range(1, 4)]


@pytest.mark.parametrize("model", ["direct", "oldest", "onnx_oldest"])
def test_an_id_may_be_used_again_before_its_end_is_answered(server: RunningServer, model: str) -> None:
    answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as peer:
        peer.start_stream(lambda result, error: answers.put((result, error)))
        for step in range(40 * 3):
            for sequence in (951, 952, 953):
                given = tritonclient.grpc.InferInput("INPUT", [1, 1], "INT32")
                given.set_data_from_numpy(np.array([[step % 3 + 1]], np.int32))
                options = {"sequence_id": sequence, "sequence_start": step % 3 == 0, "sequence_end": step % 3 == 2}
                peer.async_stream_infer(model, [given], request_id=str(sequence), **options)
        totals: dict[str, list[int]] = {"951": [], "952": [], "953": []}
        for _ in range(40 * 3 * 3):
            result, error = answers.get(timeout=20)
            assert error is None
            totals[result.get_response().id].append(int(result.as_numpy("OUTPUT")[0, 0]))
        peer.stop_stream()
    # Every one of them is right, and their answers come in the order of their requests.
    assert totals == {name: [1, 3, 6] * 40 for name in totals}
