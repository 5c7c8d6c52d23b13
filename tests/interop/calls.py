"""Calls of the inference service by grpcio's stubs and the official client's generated messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import tritonclient.grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from naiad.testing import RunningServer, wait_until
from support.triton_inputs import input_of

CALL_S = 20.0
"""No call of the suite may take longer."""
SOON_S = 5.0
ANY_SIZE = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
"""Without it the channels of one process share connections."""


@contextmanager
def channel(server: RunningServer, *options: tuple[str, Any], **more: Any) -> Iterator[grpc.Channel]:
    """A channel with a connection of its own."""
    with grpc.insecure_channel(server.grpc_url, options=(OWN_CONNECTION, *ANY_SIZE, *options), **more) as found:
        yield found


def stub(opened: Any) -> Any:
    """The inference service behind a channel."""
    return service_pb2_grpc.GRPCInferenceServiceStub(opened)


def raw_bytes(values: np.ndarray, datatype: str) -> bytes:
    """A tensor as the protocol carries it."""
    return serialize_byte_tensor(values).item() if datatype == "BYTES" else values.tobytes()


def request_for(model: str, values: np.ndarray, datatype: str = "FP32", request_id: str = "") -> pb.ModelInferRequest:
    """A request with one input, INPUT0."""
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    request.inputs.add(name="INPUT0", datatype=datatype, shape=values.shape)
    request.raw_input_contents.append(raw_bytes(values, datatype))
    return request


def floats(model: str, *values: float, request_id: str = "") -> pb.ModelInferRequest:
    """A request with a vector of FP32."""
    return request_for(model, np.array(values, np.float32), "FP32", request_id)


def vector(*values: float) -> list[Any]:
    """The input of a model that gives a vector of FP32 back, for the official clients."""
    return [input_of(tritonclient.grpc, "INPUT0", np.array(values, np.float32))]


def sum_request(first: int, second: int, model: str = "sum", request_id: str = "") -> pb.ModelInferRequest:
    """A request to a model that adds and subtracts rows of sixteen equal numbers."""
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    for name, value in (("INPUT0", first), ("INPUT1", second)):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(np.full(16, value, np.int32).tobytes())
    return request


def output(response: Any, index: int = 0) -> np.ndarray:
    """One tensor of an answer."""
    described, raw = response.outputs[index], response.raw_output_contents[index]
    if described.datatype == "BYTES":
        flat = deserialize_bytes_tensor(raw)
    else:
        flat = np.frombuffer(raw, dtype_of(described.datatype))
    return flat.reshape(tuple(described.shape))


def dtype_of(datatype: str) -> Any:
    """The numpy type of a datatype of fixed size."""
    if datatype == "BF16":
        return ml_dtypes.bfloat16
    name = datatype.lower().replace("fp", "float")
    return np.bool_ if name == "bool" else np.dtype(name)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two tensors are equal bit by bit."""
    if expected.dtype == object:
        return found.shape == expected.shape and found.tolist() == expected.tolist()
    return found.shape == expected.shape and found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """What a call that failed ended with."""
    return call.code(), call.details()


def cancelled_in_queue(server: RunningServer, model: str) -> int:
    """How many requests of a model left its queue because their caller gave up."""
    page = server.metrics_page()
    labels = rf'(?=[^}}]*model="{model}")(?=[^}}]*reason="CANCELED")'
    found = re.search(rf"^nv_inference_request_failure{{{labels}[^}}]*}} (\S+)$", page, re.MULTILINE)
    assert found, page
    return int(float(found[1]))


def executions(server: RunningServer, model: str) -> int:
    """How often a model ran."""
    return int(server.statistics(model)["execution_count"])


def wait_until_idle(server: RunningServer, model: str, ran: int) -> None:
    """Wait until a model has run ``ran`` times and has nothing left to do; it must not have run more often."""
    wait_until(lambda: executions(server, model) >= ran, CALL_S, f"{model} runs {ran} times")
    server.wait_pending(model, 0)
    found = executions(server, model)
    assert found == ran, f"{model} ran {found} times, expected {ran}"
