"""Requests, responses, errors and configurations as a model makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from naiad.worker.api import current, pb_utils

TENSOR = pb_utils.Tensor("x", np.zeros(1))


@pytest.fixture(autouse=True)
def no_server() -> Iterator[None]:
    """No host in this process: a server that ran a Python model in a thread left one."""
    host = current.find()
    current.stop()
    yield
    if host is not None:
        current.start(host)


def test_a_request_that_a_model_makes() -> None:
    request = pb_utils.InferenceRequest(
        request_id="7",
        correlation_id="seq",
        inputs=[TENSOR],
        requested_output_names=["a", "b", "a"],
        model_name="other",
        model_version=2,
        flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
        timeout=5,
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 1),
        parameters={"a": 1, "b": True, "c": "x"},
    )
    assert (request.request_id(), request.correlation_id(), request.timeout()) == ("7", "seq", 5)
    assert request.inputs() == [TENSOR]
    assert request.requested_output_names() == {"a", "b"}
    assert json.loads(request.parameters()) == {"a": 1, "b": True, "c": "x"}
    assert request.flags() == 1
    request.set_flags(2)
    assert request.flags() == pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
    assert request.trace().get_context() is None
    assert isinstance(request.preferred_memory(), pb_utils.PreferredMemory)
    assert not request.is_cancelled()
    with pytest.raises(pb_utils.TritonModelException, match="Only a request that the model received"):
        request.get_response_sender()


def test_texts_may_be_the_elements_of_a_tensor() -> None:
    # A model that is told the name of another one in a BYTES tensor passes it on as it is.
    name = np.array(["größe".encode()], object)[0]
    request = pb_utils.InferenceRequest(
        request_id=b"7", inputs=[TENSOR], requested_output_names=[name, "größe"], model_name=name
    )
    assert request.request_id() == "7"
    assert request.requested_output_names() == {"größe"}
    assert pb_utils.Tensor(name, np.zeros(1)).name() == "größe"
    assert pb_utils.Tensor.from_dlpack(np.bytes_(b"x"), np.zeros(1)).name() == "x"
    assert pb_utils.TritonError(b"why").message() == "why"
    with pytest.raises(UnicodeDecodeError):
        pb_utils.Tensor(b"\xff", np.zeros(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": [None]}, "Input tensor for request with id '' and model name 'm' should not be empty."),
        (
            {"requested_output_names": [""]},
            "Requested output name for request with id '' and model name 'm' should not be empty.",
        ),
        (
            {"requested_output_names": [b""]},
            "Requested output name for request with id '' and model name 'm' should not be empty.",
        ),
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        ({"parameters": {"a": 1.5}}, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ({"parameters": {1: 1}}, "Expect parameters keys to have type str, found type <class 'int'>"),
    ],
)
def test_requests_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pb_utils.TritonModelException, match=f"^{re.escape(message)}$"):
        pb_utils.InferenceRequest(
            **{"inputs": [TENSOR], "requested_output_names": ["a"], "model_name": "m", **arguments}
        )


def test_arguments_of_other_types() -> None:
    wrong: list[Any] = [
        lambda: pb_utils.InferenceRequest(inputs=[1], requested_output_names=["a"], model_name="m"),
        lambda: pb_utils.InferenceRequest(inputs=[TENSOR], requested_output_names="a", model_name="m"),
        lambda: pb_utils.InferenceRequest(inputs=[TENSOR], requested_output_names=b"a", model_name="m"),
        lambda: pb_utils.InferenceRequest(inputs=[TENSOR], requested_output_names=[1], model_name="m"),
        lambda: pb_utils.InferenceResponse([np.zeros(1)]),
        lambda: pb_utils.InferenceResponse(error="text"),
        lambda: pb_utils.InferenceRequest(inputs=[TENSOR], requested_output_names=["a"]),
        lambda: pb_utils.InferenceRequest(inputs=[TENSOR], model_name="m"),
        lambda: pb_utils.InferenceRequest(requested_output_names=["a"], model_name="m"),
        lambda: pb_utils.InferenceRequest(
            inputs=[TENSOR], requested_output_names=["a"], model_name="m", correlation_id=None
        ),
        lambda: pb_utils.TritonError(5),
        lambda: pb_utils.TritonError("x", 77),
        lambda: pb_utils.Logger.log_info(5),
        lambda: pb_utils.Logger.log("x", None),
        lambda: pb_utils.Logger.log("x", 1),
        lambda: pb_utils.Tensor("X", None),
        lambda: pb_utils.Tensor("", None),
    ]
    for make in wrong:
        with pytest.raises(TypeError):
            make()


@pytest.mark.parametrize("parameters", [[], [1], "a", 0])
def test_parameters_are_a_dict(parameters: Any) -> None:
    with pytest.raises(pb_utils.TritonModelException, match=re.escape(f", got {type(parameters)}")):
        pb_utils.InferenceResponse(parameters=parameters)


def test_responses() -> None:
    response = pb_utils.InferenceResponse([TENSOR], parameters={"k": 1})
    assert response.output_tensors() == [TENSOR]
    assert (response.has_error(), response.error()) == (False, None)
    assert json.loads(response.parameters()) == {"k": 1}
    assert pb_utils.get_output_tensor_by_name(response, "x") is TENSOR
    assert pb_utils.get_output_tensor_by_name(response, "y") is None
    failed = pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))
    assert failed.has_error()
    assert (failed.error().message(), failed.error().code()) == ("no", pb_utils.TritonError.INTERNAL)
    with pytest.raises(pb_utils.TritonModelException, match="should not be empty"):
        pb_utils.InferenceResponse([None])
    with pytest.raises(pb_utils.TritonModelException, match="found type <class 'float'>"):
        pb_utils.InferenceResponse([], parameters={"a": 1.5})


def test_lookups_in_a_configuration() -> None:
    config = {"input": [{"name": "A", "dims": [1]}], "output": [{"name": "B"}]}
    assert pb_utils.get_input_config_by_name(config, "A") == {"name": "A", "dims": [1]}
    assert pb_utils.get_input_config_by_name(config, "B") is None
    assert pb_utils.get_output_config_by_name(config, "B") == {"name": "B"}
    assert pb_utils.get_output_config_by_name({}, "B") is None
    assert not pb_utils.using_decoupled_model_transaction_policy(config)
    config["model_transaction_policy"] = {"decoupled": True}
    assert pb_utils.using_decoupled_model_transaction_policy(config) is True


def config(**content: Any) -> Any:
    return pb_utils.ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": [], **content}))


def test_a_configuration_is_completed() -> None:
    made = config()
    made.set_max_batch_size(4)
    made.set_dynamic_batching()
    made.add_input({"name": "I", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
    made.add_output({"name": "O", "data_type": "TYPE_FP32", "dims": [-1]})
    made.add_output({"name": "O", "data_type": "TYPE_FP32", "dims": [-1]})
    made.set_model_transaction_policy({"decoupled": True})
    found = made.as_dict()
    assert found == {
        "name": "m",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [-1], "optional": True}],
        "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [-1]}],
        "model_transaction_policy": {"decoupled": True},
    }
    found["max_batch_size"] = 99
    assert made.as_dict()["max_batch_size"] == 99


INPUT = {"name": "I", "data_type": "TYPE_FP32", "dims": [4]}
FUNCTION = "in auto-complete-config function for model 'm'"


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        (
            {"max_batch_size": 8},
            lambda c: c.set_max_batch_size(4),
            f"configuration specified max_batch_size 8, but {FUNCTION} specified max_batch_size 4",
        ),
        (
            {"sequence_batching": {}},
            lambda c: c.set_dynamic_batching(),
            "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for "
            "model 'm' tries to set scheduling_choice as 'dynamic_batching'",
        ),
        ({}, lambda c: c.add_input({"dims": [1]}), f"input {FUNCTION} is missing 'name' property."),
        (
            {},
            lambda c: c.add_output({"name": "O", "dims": [1]}),
            f"output 'O' {FUNCTION} is missing 'data_type' property.",
        ),
        (
            {},
            lambda c: c.add_input({"name": "I", "data_type": "TYPE_FP32"}),
            f"input 'I' {FUNCTION} is missing 'dims' property.",
        ),
        (
            {},
            lambda c: c.add_input({**INPUT, "reshape": 1}),
            f"input 'I' {FUNCTION} contains property other than 'name', 'data_type', 'dims' and 'optional'.",
        ),
        (
            {},
            lambda c: c.add_output({**INPUT, "optional": True}),
            f"output 'I' {FUNCTION} contains property other than 'name', 'data_type' and 'dims'.",
        ),
        (
            {"input": [INPUT]},
            lambda c: c.add_input({**INPUT, "data_type": "TYPE_INT8"}),
            "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'I', "
            "model provides TYPE_INT8",
        ),
        (
            {"output": [INPUT]},
            lambda c: c.add_output({**INPUT, "dims": [5]}),
            "model 'm', tensor 'I': the model expects dims [5] but the model configuration specifies dims [4]",
        ),
        (
            {},
            lambda c: c.set_model_transaction_policy({"other": True}),
            f"model transaction property {FUNCTION} contains property other than 'decoupled'.",
        ),
        (
            {"model_transaction_policy": {"decoupled": True}},
            lambda c: c.set_model_transaction_policy({"decoupled": False}),
            "trying to change decoupled property in auto-complete-config for model 'm', "
            "which is already set to 'True'.",
        ),
        (
            {"model_transaction_policy": {"decoupled": False}},
            lambda c: c.set_model_transaction_policy({"decoupled": True}),
            "trying to change decoupled property in auto-complete-config for model 'm', "
            "which is already set to 'False'.",
        ),
    ],
)
def test_a_configuration_is_not_contradicted(content: dict[str, Any], change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        change(config(**content))


def test_what_needs_a_server_says_so() -> None:
    request = pb_utils.InferenceRequest(inputs=[TENSOR], requested_output_names=["a"], model_name="m")
    for call in (request.exec, lambda: pb_utils.load_model("m"), pb_utils.get_model_dir):
        with pytest.raises(pb_utils.TritonModelException, match="only in a process in which the server runs a model"):
            call()


def test_the_log_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    pb_utils.Logger.log_warn("careful")
    assert re.fullmatch(r"WARNING \S+test_api_objects.py:\d+ careful\n", capsys.readouterr().err)
