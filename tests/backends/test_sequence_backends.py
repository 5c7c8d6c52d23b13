"""The test backends of sequences, with the semantics of the reference's backends of these names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving
from support.served_models import tensor, write_model

VECTOR = f"input [ {tensor('INPUT', 'TYPE_INT32', '-1')} ] output [ {tensor('OUTPUT', 'TYPE_INT32', '-1')} ]"
ONE = f"input [ {tensor('INPUT', 'TYPE_INT32', '1')} ] output [ {tensor('OUTPUT', 'TYPE_INT32', '1')} ]"
CASES = f"""input [ {tensor("INPUT", "TYPE_INT32", "1")}, {tensor("TEST_CASE", "TYPE_INT32", "1")} ]
output [ {tensor("OUTPUT", "TYPE_INT32", "1")} ]"""
STATE = 'state [ { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ]'
DECOUPLED = """model_transaction_policy { decoupled: true }
parameters { key: "execute_delay_ms" value { string_value: "1" } }"""


def controls(*kinds: str, correlation: str = "TYPE_UINT64") -> str:
    values = dict.fromkeys(kinds, "int32_false_true: [ 0, 1 ]") | {"CORRID": f"data_type: {correlation}"}
    each = (f'{{ name: "{k}" control [ {{ kind: CONTROL_SEQUENCE_{k} {values[k]} }} ] }}' for k in kinds)
    return f"control_input [ {', '.join(each)} ]"


def write(repository: Path, name: str, backend: str, section: str, tensors: str = VECTOR, size: int = 8) -> None:
    config = f'backend: "{backend}" max_batch_size: {size} {tensors} sequence_batching {{ {section} }}'
    write_model(repository, name, config)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("backends") / "models"
    four = ("START", "END", "READY", "CORRID")
    write(repository, "sequence", "sequence", f"direct {{ }} {controls('START', 'READY')}")
    write(repository, "dyna", "dyna_sequence", f"oldest {{ }} {controls(*four)}")
    write(repository, "named", "dyna_sequence", f"oldest {{ }} {controls(*four, correlation='TYPE_STRING')}")
    three = controls("START", "END", "READY")
    write(repository, "state", "implicit_state", f"{three} {STATE}", CASES, 0)
    write(repository, "stateless", "implicit_state", three, CASES, 0)
    write(repository, "counts", "iterative_sequence", "iterative_sequence: true", ONE + DECOUPLED)
    plain = f'backend: "iterative_sequence" max_batch_size: 8 {ONE} {DECOUPLED} dynamic_batching {{ }}'
    write_model(repository, "no_sequences", plain)
    write(repository, "wrong", "sequence", f"direct {{ }} {controls('START')}")
    with serving(repository.parent / "log", repository, "--exit-on-error=false") as running:
        yield running
        assert "Traceback" not in running.log


def infer(server: RunningServer, model: str, sequence: int | str, start: bool, end: bool, **values: Any) -> list[int]:
    given = []
    for name, value in values.items():
        array = np.array(value, np.int32)
        given.append(tritonclient.http.InferInput(name, list(array.shape), "INT32"))
        given[-1].set_data_from_numpy(array)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        found = client.infer(model, given, sequence_id=sequence, sequence_start=start, sequence_end=end)
    return [int(value) for value in found.as_numpy("OUTPUT").ravel()]


@pytest.mark.slow
def test_sequence_adds_up_all_elements(server: RunningServer) -> None:
    assert infer(server, "sequence", 1, True, False, INPUT=[[1, 2, 3]]) == [6, 6, 6]
    assert infer(server, "sequence", 2, True, False, INPUT=[[5]]) == [5]
    assert infer(server, "sequence", 1, False, True, INPUT=[[4, 4]]) == [14, 14]
    assert infer(server, "sequence", 2, False, True, INPUT=[[2**31 - 1]]) == [-(2**31) + 4]


@pytest.mark.parametrize(("model", "sequence"), [("dyna", 70), ("named", "70")])
def test_dyna_sequence_adds_the_id_at_the_end(server: RunningServer, model: str, sequence: int | str) -> None:
    assert infer(server, model, sequence, True, False, INPUT=[[1, 2]]) == [3, 3]
    assert infer(server, model, sequence, False, False, INPUT=[[4]]) == [7]
    assert infer(server, model, sequence, False, True, INPUT=[[3]]) == [80]
    assert infer(server, model, sequence, True, True, INPUT=[[1]]) == [71]


def test_an_id_that_is_no_number_cannot_be_added(server: RunningServer) -> None:
    with pytest.raises(InferenceServerException, match="the CORRID 'abc' of a sequence that ends is no number"):
        infer(server, "named", "abc", True, True, INPUT=[[1]])


@pytest.mark.slow
def test_implicit_state_does_what_the_case_says(server: RunningServer) -> None:
    assert infer(server, "state", 3, True, False, INPUT=[1], TEST_CASE=[1]) == [1]
    assert infer(server, "state", 3, False, False, INPUT=[1], TEST_CASE=[1]) == [1]
    assert infer(server, "state", 3, False, True, INPUT=[2], TEST_CASE=[2]) == [2]
    with pytest.raises(InferenceServerException, match="state 'undefined_state' is not a valid state name"):
        infer(server, "state", 4, True, False, INPUT=[1], TEST_CASE=[0])
    text = "unable to add state 'undefined_state'. State configuration is missing for model 'stateless'."
    with pytest.raises(InferenceServerException, match=text):
        infer(server, "stateless", 4, True, False, INPUT=[1], TEST_CASE=[0])
    with pytest.raises(InferenceServerException, match="growable memory should always provide memory in GPU"):
        infer(server, "state", 5, True, False, INPUT=[1], TEST_CASE=[3])


@pytest.mark.parametrize("sequence", [0, 9, "text"])
def test_iterative_sequence_counts_down(server: RunningServer, sequence: int | str) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    given = tritonclient.grpc.InferInput("INPUT", [1, 1], "INT32")
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        expected: dict[str, list[int]] = {}
        for count in (1, 5, 3, 2, 4, 2, 5, 1, 3):
            given.set_data_from_numpy(np.array([[count]], np.int32))
            name = f"{len(expected)}"
            expected[name] = list(range(count - 1, -1, -1))
            client.async_stream_infer("counts", [given], request_id=name, sequence_id=sequence)
        found: dict[str, list[int]] = {name: [] for name in expected}
        for _ in range(sum(map(len, expected.values()))):
            result, error = answers.get(timeout=20)
            assert error is None
            found[result.get_response().id].append(int(result.as_numpy("OUTPUT")[0, 0]))
        client.stop_stream()
    assert found == expected


def test_iterative_sequence_needs_sequences(server: RunningServer) -> None:
    answer = server.post("/v2/models/no_sequences/generate", {"INPUT": 2})
    assert "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not" in answer.error


@pytest.mark.slow
def test_one_who_leaves_takes_no_other_iterative_request_along(server: RunningServer) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    given = tritonclient.grpc.InferInput("INPUT", [1, 1], "INT32")
    given.set_data_from_numpy(np.array([[400]], np.int32))
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as staying,
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as leaving,
    ):
        for client in (staying, leaving):
            client.start_stream(lambda result, error: answers.put((result, error)))
        staying.async_stream_infer("counts", [given], request_id="first", sequence_id=9)
        answers.get(timeout=20)
        leaving.async_stream_infer("counts", [given], request_id="gone", sequence_id=9)
        server.wait_pending("counts", 1)
        staying.async_stream_infer("counts", [given], request_id="last", sequence_id=9)
        server.wait_pending("counts", 2)
        leaving.stop_stream(cancel_requests=True)
        found = {"first": 1, "last": 0}
        while sum(found.values()) < 800:
            result, error = answers.get(timeout=20)
            if error is None:
                found[result.get_response().id] += 1
            else:
                assert "cancelled" in str(error).lower()
        staying.stop_stream()
    assert found == {"first": 400, "last": 400}


def test_a_model_that_is_none_for_the_backend_is_refused(server: RunningServer) -> None:
    assert "'START' and 'READY' must be configured as the control inputs" in server.log
    assert server.get("/v2/models/wrong/ready").status == 400
