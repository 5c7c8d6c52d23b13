"""The official client, tritonclient.grpc, with all of its API that is served."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from interop.calls import ANY_SIZE, CALL_S, OWN_CONNECTION, cancelled_in_queue, same, vector, wait_until_idle
from interop.models import DELAY_MS, VALUES
from naiad.testing import RunningServer
from support.triton_inputs import input_of

DELAY_S = DELAY_MS / 1000


@pytest.fixture
def client(server: RunningServer) -> Iterator[Any]:
    with triton.InferenceServerClient(server.grpc_url, channel_args=[OWN_CONNECTION, *ANY_SIZE]) as found:
        yield found


def rows(first: int, second: int) -> list[Any]:
    """Inputs of a model that adds and subtracts."""
    values = ((f"INPUT{i}", np.full((1, 16), v, np.int32)) for i, v in enumerate((first, second)))
    return [input_of(triton, name, v, "INT32") for name, v in values]


# Describing


def test_health(client: Any) -> None:
    assert client.is_server_live(client_timeout=CALL_S)
    assert client.is_server_ready(headers={"name": "value"}, client_timeout=CALL_S)
    assert client.is_model_ready("sum", client_timeout=CALL_S)
    assert client.is_model_ready("versions", "1")
    assert not client.is_model_ready("versions", "2")
    assert not client.is_model_ready("nope")


def test_metadata(client: Any) -> None:
    found = client.get_server_metadata(as_json=True, client_timeout=CALL_S)
    assert found["name"] == "nymph"
    assert "statistics" in found["extensions"]
    model = client.get_model_metadata("sum", as_json=True)
    assert model["versions"] == ["1"]
    assert [(i["name"], i["datatype"], i["shape"]) for i in model["inputs"]] == [
        ("INPUT0", "INT32", ["-1", "16"]),
        ("INPUT1", "INT32", ["-1", "16"]),
    ]
    assert client.get_model_metadata("versions").versions == ["1", "7"]
    assert client.get_model_metadata("versions", "7").versions == ["7"]


def test_configuration(client: Any) -> None:
    config = client.get_model_config("id_BYTES", as_json=True)["config"]
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("id_BYTES", "identity", 4)
    assert config["input"][0]["data_type"] == "TYPE_STRING"


def test_statistics(client: Any) -> None:
    before = inferences(client)
    client.infer("sum_triton", rows(1, 2))
    assert inferences(client) == before + 1
    everything = client.get_inference_statistics()
    assert {"sum", "sum_triton", "versions"} <= {m.name for m in everything.model_stats}


def inferences(client: Any) -> int:
    (found,) = client.get_inference_statistics("sum_triton", as_json=True)["model_stats"]
    return int(found.get("inference_count", 0))


def test_index(client: Any, models: Path) -> None:
    index = client.get_model_repository_index(as_json=True)["models"]
    assert {m["name"] for m in index} == {folder.name for folder in models.iterdir()}
    assert {m["state"] for m in index} == {"READY"}


ERRORS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "metadata": (
        lambda c: c.get_model_metadata("nöpe"),
        "StatusCode.NOT_FOUND",
        "Request for unknown model: 'nöpe' is not found",
    ),
    "config": (
        lambda c: c.get_model_config("versions", "2"),
        "StatusCode.NOT_FOUND",
        "Request for unknown model: 'versions' version 2 is not found",
    ),
    "statistics": (
        lambda c: c.get_inference_statistics("nope"),
        "StatusCode.INVALID_ARGUMENT",
        "requested model 'nope' is not available",
    ),
    "infer": (
        lambda c: c.infer("nope", vector(1)),
        "StatusCode.NOT_FOUND",
        "Request for unknown model: 'nope' is not found",
    ),
    "version": (
        lambda c: c.infer("versions", vector(1), model_version="one"),
        "StatusCode.INVALID_ARGUMENT",
        "failed to get model version from specified version string 'one' (details: stol), version should be an "
        "integral value > 0",
    ),
    "output": (
        lambda c: c.infer("sum", rows(1, 2), outputs=[triton.InferRequestedOutput("NOPE")]),
        "StatusCode.INVALID_ARGUMENT",
        "unexpected inference output 'NOPE' for model 'sum'",
    ),
    "load": (
        lambda c: c.load_model("sum"),
        "StatusCode.UNAVAILABLE",
        "explicit model load / unload is not allowed if polling is enabled; start the server with "
        "--model-control-mode=explicit to load and unload models over the API",
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_has_its_status_and_text(client: Any, what: str) -> None:
    ask, status, text = ERRORS[what]
    with pytest.raises(InferenceServerException) as failure:
        ask(client)
    assert failure.value.status() == status
    assert failure.value.message().endswith(text)


# Inference


@pytest.mark.parametrize("datatype", VALUES)
def test_infer_gives_a_datatype_back(client: Any, datatype: str) -> None:
    wanted = [triton.InferRequestedOutput("OUTPUT0")]
    inputs = [input_of(triton, "INPUT0", VALUES[datatype], datatype)]
    result = client.infer(f"id_{datatype}", inputs, outputs=wanted, request_id="ä 7", client_timeout=CALL_S)
    assert result.get_response().id == "ä 7"
    assert result.get_output("OUTPUT0").datatype == datatype
    assert same(result.as_numpy("OUTPUT0"), VALUES[datatype])


def test_infer_with_everything_that_may_be_said(client: Any) -> None:
    result = client.infer(
        "sum_triton",
        rows(3, 1),
        model_version="1",
        outputs=[triton.InferRequestedOutput("OUTPUT1")],
        request_id="id",
        timeout=5_000_000,
        client_timeout=CALL_S,
        headers={"name": "value"},
        compression_algorithm="gzip",
        parameters={"text": "a", "number": 1, "truth": True},
    )
    assert [o.name for o in result.get_response().outputs] == ["OUTPUT1"]
    assert (result.as_numpy("OUTPUT1") == 2).all()
    assert result.as_numpy("OUTPUT0") is None


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_compression(compressing: RunningServer, compression: str | None) -> None:
    values = np.arange(100_000, dtype=np.uint32).view(np.uint8)
    with triton.InferenceServerClient(compressing.grpc_url) as client:
        result = client.infer("large", [input_of(triton, "INPUT0", values, "UINT8")], compression_algorithm=compression)
        assert same(result.as_numpy("OUTPUT0"), values)


@pytest.mark.slow
def test_client_timeout(server: RunningServer, client: Any, slow: str) -> None:
    with pytest.raises(InferenceServerException) as failure:
        client.infer(slow, vector(1), client_timeout=DELAY_S / 3)
    assert failure.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    wait_until_idle(server, slow, ran=1)


def test_async_infer(client: Any) -> None:
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for i in range(100):
        client.async_infer(
            "sum_triton", rows(i, 1), partial(lambda n, result, error: answers.put((n, result, error)), i)
        )
    for _ in range(100):
        number, result, error = answers.get(timeout=CALL_S)
        assert error is None
        assert (result.as_numpy("OUTPUT0") == number + 1).all()


def test_async_infer_reports_an_error(client: Any) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.async_infer("nope", vector(1), lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=CALL_S)
    assert result is None
    assert error.status() == "StatusCode.NOT_FOUND"


@pytest.mark.slow
def test_async_infer_can_be_cancelled(server: RunningServer, client: Any, slow: str) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    calls = []
    for i in range(6):
        calls.append(client.async_infer(slow, vector(i), lambda result, error: answers.put((result, error))))
        # Once this is answered, the request before it has arrived.
        assert client.is_server_live()
    server.wait_pending(slow, 5)
    for call in calls[1:]:
        call.cancel()
    found = [answers.get(timeout=CALL_S) for _ in calls]
    assert sorted(error.status() for _, error in found if error is not None) == ["StatusCode.CANCELLED"] * 5
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 5


# Streams

Answers = queue.Queue[tuple[Any, Any]]


@pytest.fixture
def answers() -> Answers:
    return queue.Queue()


def begin_stream(client: Any, answers: Answers, **options: Any) -> None:
    client.start_stream(lambda result, error: answers.put((result, error)), **options)


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_a_stream_with_all_datatypes(client: Any, answers: Answers, compression: str | None) -> None:
    begin_stream(client, answers, compression_algorithm=compression, headers={"name": "value"})
    for datatype, values in VALUES.items():
        client.async_stream_infer(f"id_{datatype}", [input_of(triton, "INPUT0", values, datatype)], request_id=datatype)
    for datatype, values in VALUES.items():
        result, error = answers.get(timeout=CALL_S)
        assert error is None
        assert result.get_response().id == datatype
        assert same(result.as_numpy("OUTPUT0"), values)
    client.stop_stream()


def test_errors_on_a_stream(client: Any, answers: Answers) -> None:
    begin_stream(client, answers)
    client.async_stream_infer("nope", vector(1), request_id="bad")
    client.async_stream_infer("sum_triton", rows(1, 2), enable_empty_final_response=True)
    result, error = answers.get(timeout=CALL_S)
    assert result is None
    assert error.message() == "Request for unknown model: 'nope' is not found"
    result, error = answers.get(timeout=CALL_S)
    assert error is None
    assert (result.as_numpy("OUTPUT0") == 3).all()
    client.stop_stream()


@pytest.mark.slow
def test_stopping_a_stream_waits_for_its_answers(client: Any, answers: Answers, slow: str) -> None:
    begin_stream(client, answers)
    for i in range(2):
        client.async_stream_infer(slow, vector(i))
    client.stop_stream()
    assert [float(answers.get_nowait()[0].as_numpy("OUTPUT0")[0]) for _ in range(2)] == [0, 1]


@pytest.mark.slow
def test_stopping_a_stream_by_cancelling_it(server: RunningServer, client: Any, answers: Answers, slow: str) -> None:
    begin_stream(client, answers)
    for i in range(6):
        client.async_stream_infer(slow, vector(i))
    server.wait_pending(slow, 5)
    client.stop_stream(cancel_requests=True)
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 5


@pytest.mark.slow
def test_the_timeout_of_a_stream(server: RunningServer, client: Any, answers: Answers, slow: str) -> None:
    begin_stream(client, answers, stream_timeout=DELAY_S / 3)
    client.async_stream_infer(slow, vector(1))
    result, error = answers.get(timeout=CALL_S)
    assert result is None
    assert error.status() == "StatusCode.DEADLINE_EXCEEDED"
    client.stop_stream()
    wait_until_idle(server, slow, ran=1)
