"""Every name of the models' interface: how it is called, what it gives back, and each text that is promised."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from naiad.worker.api import pb_utils
from naiad.worker.ipc import frames as p
from support.worker_peer import Request, bare_worker, worker_of, write_execute, write_model

NONE = inspect.Parameter.empty
CPU, GPU = pb_utils.TRITONSERVER_MEMORY_CPU, pb_utils.TRITONSERVER_MEMORY_GPU

# What is called, its parameters in their order with their defaults (NONE: has to be given).
CALLS: dict[str, dict[str, Any]] = {
    "get_input_tensor_by_name": {"inference_request": NONE, "name": NONE},
    "get_output_tensor_by_name": {"inference_response": NONE, "name": NONE},
    "get_input_config_by_name": {"model_config": NONE, "name": NONE},
    "get_output_config_by_name": {"model_config": NONE, "name": NONE},
    "using_decoupled_model_transaction_policy": {"model_config": NONE},
    "triton_to_numpy_type": {"data_type": NONE},
    "numpy_to_triton_type": {"data_type": NONE},
    "triton_string_to_numpy": {"triton_type_string": NONE},
    "serialize_byte_tensor": {"input_tensor": NONE},
    "deserialize_bytes_tensor": {"encoded_tensor": NONE},
    "load_model": {"model_name": NONE, "config": "", "files": None},
    "unload_model": {"model_name": NONE, "unload_dependents": False},
    "is_model_ready": {"model_name": NONE, "model_version": ""},
    "get_model_dir": {},
    "Tensor": {"name": NONE, "numpy_array": NONE},
    "Tensor.name": {},
    "Tensor.as_numpy": {},
    "Tensor.triton_dtype": {},
    "Tensor.shape": {},
    "Tensor.is_cpu": {},
    "Tensor.to_dlpack": {},
    "Tensor.from_dlpack": {"name": NONE, "tensor": NONE},
    "Tensor.__dlpack_device__": {},
    # None for what has to be given: Python has no other way to put that behind what has not.
    "InferenceRequest": {
        "request_id": "",
        "correlation_id": 0,
        "inputs": None,
        "requested_output_names": None,
        "model_name": None,
        "model_version": -1,
        "flags": 0,
        "timeout": 0,
        "preferred_memory": None,
        "trace": None,
        "parameters": None,
    },
    "InferenceRequest.inputs": {},
    "InferenceRequest.request_id": {},
    "InferenceRequest.correlation_id": {},
    "InferenceRequest.flags": {},
    "InferenceRequest.set_flags": {"flags": NONE},
    "InferenceRequest.timeout": {},
    "InferenceRequest.parameters": {},
    "InferenceRequest.requested_output_names": {},
    "InferenceRequest.preferred_memory": {},
    "InferenceRequest.trace": {},
    "InferenceRequest.get_response_sender": {},
    "InferenceRequest.is_cancelled": {},
    "InferenceRequest.set_release_flags": {"flags": NONE},
    "InferenceRequest.exec": {"decoupled": False},
    "InferenceRequest.async_exec": {"decoupled": False},
    "InferenceResponse": {"output_tensors": (), "error": None, "parameters": None},
    "InferenceResponse.output_tensors": {},
    "InferenceResponse.has_error": {},
    "InferenceResponse.error": {},
    "InferenceResponse.parameters": {},
    "TritonError": {"message": NONE, "code": pb_utils.TritonError.INTERNAL},
    "TritonError.message": {},
    "TritonError.code": {},
    "InferenceResponseSender.send": {"response": None, "flags": 0},
    "InferenceResponseSender.is_cancelled": {},
    "ResponseIterator.__iter__": {},
    "ResponseIterator.__next__": {},
    "ResponseIterator.cancel": {},
    "PreferredMemory": {"preferred_memory_type": NONE, "preferred_device_id": 0},
    "InferenceTrace": {},
    "InferenceTrace.get_context": {},
    "Logger.log": {"message": NONE, "level": pb_utils.Logger.INFO},
    "Logger.log_info": {"message": NONE},
    "Logger.log_warn": {"message": NONE},
    "Logger.log_error": {"message": NONE},
    "Logger.log_verbose": {"message": NONE},
    "MetricFamily": {"name": NONE, "description": NONE, "kind": NONE},
    "MetricFamily.Metric": {"labels": None, "buckets": None},
    "Metric.increment": {"value": NONE},
    "Metric.set": {"value": NONE},
    "Metric.observe": {"value": NONE},
    "Metric.value": {},
    "ModelConfig": {"model_config": NONE},
    "ModelConfig.as_dict": {},
    "ModelConfig.set_max_batch_size": {"max_batch_size": NONE},
    "ModelConfig.set_dynamic_batching": {},
    "ModelConfig.add_input": {"input": NONE},
    "ModelConfig.add_output": {"output": NONE},
    "ModelConfig.set_model_transaction_policy": {"transaction_policy_dict": NONE},
}
STATIC = ("Tensor.from_dlpack", "Logger.log")


def found(path: str) -> Any:
    here: Any = pb_utils
    for name in path.split("."):
        here = getattr(here, name)
    return here


@pytest.mark.parametrize("path", CALLS)
def test_how_it_is_called(path: str) -> None:
    parameters = dict(inspect.signature(found(path)).parameters)
    if "." in path and not path.startswith(STATIC):
        parameters.pop("self")
    assert {n: q.default for n, q in parameters.items()} == CALLS[path]
    assert list(parameters) == list(CALLS[path])


def test_dlpack_takes_a_stream() -> None:
    assert inspect.signature(pb_utils.Tensor.__dlpack__).parameters["stream"].default is None


def test_nothing_else_is_public() -> None:
    classes = {n for n in pb_utils.__all__ if isinstance(getattr(pb_utils, n), type)}
    known = {path.partition(".")[0] for path in CALLS} | {"TritonModelException", "MemoryType", "MetricKind"}
    assert classes <= known
    functions = {n for n in pb_utils.__all__ if inspect.isfunction(getattr(pb_utils, n))}
    assert functions <= known
    for name in classes - {"MemoryType", "MetricKind", "TritonModelException"}:
        methods = {n for n, v in vars(getattr(pb_utils, name)).items() if not n.startswith("_") and callable(v)}
        methods = {n for n in methods if not isinstance(getattr(getattr(pb_utils, name), n), type)}
        # What the server's side of the process calls, which models have no reason to.
        methods -= {"count", "close"}
        # Of Naiad: the reference has no name for it in Python.
        methods -= {"report_activity"}
        assert {f"{name}.{n}" for n in methods} <= set(CALLS), name


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("TRITONSERVER_REQUEST_FLAG_SEQUENCE_START", 1),
        ("TRITONSERVER_REQUEST_FLAG_SEQUENCE_END", 2),
        ("TRITONSERVER_RESPONSE_COMPLETE_FINAL", 1),
        ("TRITONSERVER_REQUEST_RELEASE_ALL", 1),
        ("TRITONSERVER_REQUEST_RELEASE_RESCHEDULE", 2),
        ("MetricFamily.COUNTER", 0),
        ("MetricFamily.GAUGE", 1),
        ("MetricFamily.HISTOGRAM", 2),
        ("Logger.INFO", 0),
        ("Logger.WARNING", 1),
        ("Logger.ERROR", 2),
        ("Logger.VERBOSE", 3),
        *((f"TritonError.{name}", number) for number, name in enumerate(
            ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
             "CANCELLED"))),
    ],
)  # fmt: skip
def test_constants(path: str, value: int) -> None:
    assert found(path) == value
    assert isinstance(found(path), int)


def test_places_for_outputs() -> None:
    assert issubclass(type(CPU), IntEnum)
    assert CPU != GPU
    for place in (CPU, GPU):
        assert isinstance(pb_utils.PreferredMemory(place, 1), pb_utils.PreferredMemory)


TENSOR = pb_utils.Tensor("x", np.ones((2, 3), np.float32))
REQUEST = pb_utils.InferenceRequest(
    model_name="m", inputs=[TENSOR], requested_output_names=["y"], preferred_memory=pb_utils.PreferredMemory(GPU)
)
RESPONSE = pb_utils.InferenceResponse([TENSOR])


def request(**arguments: Any) -> Any:
    """A request with what it needs and no more, but for ``arguments``."""
    needed = {"model_name": "m", "inputs": [TENSOR], "requested_output_names": ["y"]}
    return pb_utils.InferenceRequest(**{**needed, **arguments})


ERROR = pb_utils.TritonError("text", pb_utils.TritonError.NOT_FOUND)
CONFIG = pb_utils.ModelConfig(json.dumps({"name": "m", "input": [], "output": []}))


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (TENSOR.name, str),
        (TENSOR.as_numpy, np.ndarray),
        (TENSOR.triton_dtype, int),
        (TENSOR.shape, list),
        (TENSOR.is_cpu, bool),
        (TENSOR.__dlpack_device__, tuple),
        (lambda: pb_utils.Tensor.from_dlpack("y", TENSOR), pb_utils.Tensor),
        (REQUEST.inputs, list),
        (REQUEST.request_id, str),
        (REQUEST.correlation_id, int),
        (request(correlation_id="a").correlation_id, str),
        (REQUEST.flags, int),
        (REQUEST.timeout, int),
        (REQUEST.parameters, str),
        (REQUEST.requested_output_names, set),
        (REQUEST.preferred_memory, pb_utils.PreferredMemory),
        (request().preferred_memory, pb_utils.PreferredMemory),
        (REQUEST.trace, pb_utils.InferenceTrace),
        (REQUEST.trace().get_context, type(None)),
        (pb_utils.InferenceTrace().get_context, type(None)),
        (REQUEST.is_cancelled, bool),
        (lambda: REQUEST.set_flags(1), type(None)),
        (lambda: REQUEST.set_release_flags(2), type(None)),
        (RESPONSE.output_tensors, list),
        (RESPONSE.has_error, bool),
        (RESPONSE.error, type(None)),
        (RESPONSE.parameters, str),
        (pb_utils.InferenceResponse(error=ERROR).error, pb_utils.TritonError),
        (ERROR.message, str),
        (ERROR.code, int),
        (CONFIG.as_dict, dict),
        (lambda: CONFIG.set_max_batch_size(1), type(None)),
        (lambda: pb_utils.serialize_byte_tensor(np.array([b"a"], object)), bytes),
        (lambda: pb_utils.deserialize_bytes_tensor(b""), np.ndarray),
        (lambda: pb_utils.triton_to_numpy_type(11), type),
        (lambda: pb_utils.numpy_to_triton_type(np.float32), int),
        (lambda: pb_utils.triton_string_to_numpy("TYPE_FP32"), type),
        (lambda: pb_utils.using_decoupled_model_transaction_policy({}), bool),
    ],
)
def test_what_it_gives_back(made: Callable[[], Any], kind: type) -> None:
    assert isinstance(made(), kind)


def test_what_a_constructor_needs() -> None:
    assert (request().parameters(), pb_utils.InferenceResponse().parameters()) == ("{}", "{}")
    assert pb_utils.InferenceResponse().output_tensors() == []
    with pytest.raises(TypeError, match="inputs is missing"):
        pb_utils.InferenceRequest(model_name="m", requested_output_names=["y"])
    with pytest.raises(TypeError, match="requested_output_names is missing"):
        pb_utils.InferenceRequest(model_name="m", inputs=[TENSOR])


@pytest.mark.parametrize(
    "arguments",
    [
        {"timeout": -1},
        {"timeout": 2**64},
        {"timeout": 1.5},
        {"flags": -1},
        {"flags": 2**32},
        {"correlation_id": -1},
        {"correlation_id": 2**64},
        {"model_version": "1"},
        {"request_id": 7},
        {"model_name": None},
    ],
)
def test_what_fits_no_request_is_refused_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        request(**arguments)


def test_flags_are_checked_when_they_change() -> None:
    with pytest.raises(TypeError, match="flags must be a number from 0 to 4294967295, found -1"):
        request().set_flags(-1)


# Texts that people look for. Those of ``ModelConfig`` are in ``test_api_objects.py``, those of metrics and loading in
# ``test_control.py``, those about settings and the health of processes in ``tests/backends``.


class OnTheDevice:
    """A tensor of a framework on a graphics card, as far as DLPack can tell."""

    def __init__(self) -> None:
        self.array = torch.zeros(2)

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


BF16 = torch.zeros(2, dtype=torch.bfloat16)
SAID_HERE: list[tuple[Callable[[], Any], str]] = [
    (lambda: pb_utils.Tensor("", np.zeros(1)), "Tensor name cannot be an empty string."),
    (
        lambda: pb_utils.Tensor.from_dlpack("x", OnTheDevice()).as_numpy(),
        "Tensor is stored in GPU and cannot be converted to NumPy.",
    ),
    (
        lambda: pb_utils.Tensor.from_dlpack("x", BF16).as_numpy(),
        "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead.",
    ),
    (
        lambda: pb_utils.Tensor("x", np.array([b"a"], object)).to_dlpack(),
        "DLPack does not have support for string tensors.",
    ),
    (
        lambda: pb_utils.InferenceResponse(parameters={"a": None}),
        "Expect parameters values to have type bool/int/str, found type <class 'NoneType'>",
    ),
    (
        lambda: request(parameters={"a": [1]}),
        "Expect parameters values to have type bool/int/str, found type <class 'list'>",
    ),
]


@pytest.mark.parametrize(("call", "text"), SAID_HERE)
def test_texts_of_objects(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(pb_utils.TritonModelException, match=f"^{re.escape(text)}$"):
        call()


ONE = Request({"IN": np.array([1], np.int32)})
RUNS: dict[str, str] = {
    "return 7": "Expected a list in the execute return, found type '<class 'int'>'.",
    "return None": "Expected a list in the execute return, found type '<class 'NoneType'>'.",
    "return []": (
        "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) "
        "size is:1, and InferenceResponse(s) size is:0"
    ),
    "return ['text']": (
        "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."
    ),
    "requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE); return [5]": (
        "Expected a None object in the execute function return list for reschduled request, found type '<class 'int'>'."
    ),
    "raise ValueError('of the model')": (
        "Failed to process the request(s) for model 'm_0_0', message: ValueError: of the model\n\nAt:\n"
    ),
    "assert not requests": (
        "Failed to process the request(s) for model 'm_0_0', message: AssertionError: <EMPTY MESSAGE>\n\nAt:\n"
    ),
    "s = requests[0].get_response_sender(); s.send(flags=1)": (
        "Unable to send response. Non-decoupled model cannot send complete final before sending a response"
    ),
    "s = requests[0].get_response_sender(); s.send()": (
        "Inference Response object must be provided when the response flags is set to zero."
    ),
    "s = requests[0].get_response_sender(); r = pb_utils.InferenceResponse(); s.send(r, 1); s.send(flags=1)": (
        "Unable to send response. Response sender has been closed."
    ),
    "s = requests[0].get_response_sender(); r = pb_utils.InferenceResponse(); s.send(r); s.send(r)": (
        "Unable to send response. Non-decoupled model cannot send more than one response."
    ),
}


@pytest.mark.parametrize("body", RUNS)
def test_texts_of_execute(tmp_path: Path, body: str) -> None:
    body_or_text = body if not body.startswith("s = ") else TELLS.format(body)
    with worker_of(write_execute(tmp_path, body_or_text)) as child:
        child.execute(1, [ONE])
        frame = child.expect(p.DONE if not body.startswith("s = ") else p.LOG, p.RESPONSE, p.RESPONSES, p.LOG)
        assert RUNS[body] in frame.json["message"]


# An exception after the final response has nobody to go to, so it is told to the log.
TELLS = """
try:
    {}
except pb_utils.TritonModelException as error:
    pb_utils.Logger.log_error("heard: " + str(error))
return None
"""


def test_text_of_a_decoupled_model_that_returns_something(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, "return []"), decoupled=True, model_name="m") as child:
        child.execute(1, [ONE])
        text = child.expect(p.DONE).json["message"]
    assert "Python model 'm_0_0' is using the decoupled mode and the execute function must return None." in text


def test_text_of_a_call_outside_of_execute(tmp_path: Path) -> None:
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            pb_utils.InferenceRequest(
                model_name="o", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", np.zeros(1))]
            ).exec()
    """
    with bare_worker() as child:
        failed = child.start(write_model(tmp_path, source))
    assert failed.kind == p.FAILED
    assert "BLS is only supported during the 'execute' function." in failed.json["message"]


def test_text_of_a_completion_that_gives_nothing_back(tmp_path: Path) -> None:
    source = """
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            pass
    """
    with bare_worker() as child:
        failed = child.start(write_model(tmp_path, source), mode="complete", config={"name": "m"})
    text = "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
    assert failed.json["message"] == text


def test_text_of_a_completion_that_is_no_json(tmp_path: Path) -> None:
    source = """
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.add_input({"name": "I", "data_type": "TYPE_FP32", "dims": np.array([2])})
            return config
    """
    with bare_worker() as child:
        failed = child.start(write_model(tmp_path, source), mode="complete", config={"name": "m"})
    assert failed.kind == p.FAILED
    assert failed.json["message"].startswith("TypeError: Object of type ndarray is not JSON serializable\n\nAt:\n")


@pytest.mark.parametrize("answer", ["1", "None", "'yes'"])
def test_text_of_a_readiness_that_is_no_bool(tmp_path: Path, answer: str) -> None:
    source = f"""
    class TritonPythonModel:
        def is_ready(self):
            return {answer}
        def execute(self, requests):
            return []
    """
    with worker_of(write_model(tmp_path, source)) as child:
        child.send(p.CHECK_READY, 3)
        assert child.expect(p.IS_READY).json == {"error": "is_ready() must return a boolean value"}


def test_what_a_received_request_says(tmp_path: Path) -> None:
    body = """
    out = []
    for r in requests:
        memory = r.preferred_memory()
        seen = [r.trace().get_context(), type(r.trace()).__name__, type(memory).__name__, r.correlation_id(),
                r.timeout(), r.flags(), r.parameters(), sorted(r.requested_output_names()), r.request_id()]
        r.set_flags(2)
        assert r.flags() == 2
        out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], dtype=object))]))
    return out
    """
    plain = Request(ONE.inputs)
    full = Request(
        ONE.inputs,
        ("OUT",),
        "seven",
        {"trace": "ctx", "correlation_id": "s", "timeout_us": 9, "flags": 1, "parameters": {"k": 1.5}},
    )
    with worker_of(write_execute(tmp_path, body)) as child:
        one, two = (json.loads(r.outputs["OUT"][0]) for r in child.run([plain, full]))
    assert one == [None, "InferenceTrace", "PreferredMemory", 0, 0, 0, "{}", [], ""]
    assert two == ["ctx", "InferenceTrace", "PreferredMemory", "s", 9, 1, '{"k":1.5}', ["OUT"], "seven"]
