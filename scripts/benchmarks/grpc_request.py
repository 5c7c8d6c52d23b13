"""Messages of the gRPC protocol as bytes, and a real client's look at an answer before it is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from naiad.config.messages import message_class

from .figures import CaseError, CaseSkippedError
from .infer import DATATYPES, NUMPY_TYPES, Array

SERVICE = "/inference.GRPCInferenceService"
INFER = f"{SERVICE}/ModelInfer"
STREAM_INFER = f"{SERVICE}/ModelStreamInfer"
ANSWER_SECONDS = 30
PREFIX_BYTES = 5


def infer_message(model: str, inputs: Mapping[str, Array], output: str = "", request_id: str = "") -> bytes:
    """A ``ModelInferRequest`` whose inputs are raw; an ``output`` of "" asks for all outputs."""
    request = message_class("ModelInferRequest")(model_name=model, id=request_id)
    for name, array in inputs.items():
        _describe(request.inputs.add(), name, array)
        request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
    if output:
        request.outputs.add().name = output
    return bytes(request.SerializeToString())


def placed_message(
    model: str,
    given: tuple[str, tuple[int, ...]],
    output: str,
    input_place: Mapping[str, str | int],
    output_place: Mapping[str, str | int],
) -> bytes:
    """A ``ModelInferRequest`` with one FP32 input, ``given`` as name and shape; both tensors lie in regions."""
    request = message_class("ModelInferRequest")(model_name=model)
    tensor, asked = request.inputs.add(), request.outputs.add()
    tensor.name, tensor.datatype = given[0], "FP32"
    tensor.shape.extend(given[1])
    asked.name = output
    for found, place in ((tensor, input_place), (asked, output_place)):
        for name, value in place.items():
            kind = "string_param" if isinstance(value, str) else "int64_param"
            setattr(found.parameters[name], kind, value)
    return bytes(request.SerializeToString())


def typed_message(model: str, name: str, array: Array) -> bytes:
    """A ``ModelInferRequest`` with one FP32 input in typed contents."""
    request = message_class("ModelInferRequest")(model_name=model)
    tensor = request.inputs.add()
    _describe(tensor, name, array)
    tensor.contents.fp32_contents.extend(array.ravel().tolist())
    return bytes(request.SerializeToString())


def _describe(tensor: Any, name: str, array: Array) -> None:
    tensor.name, tensor.datatype = name, DATATYPES[array.dtype.name]
    tensor.shape.extend(array.shape)


def framed(message: bytes) -> bytes:
    """``message`` behind the five bytes that gRPC puts before each: not compressed, and its length."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def ask_unary(port: int, path: str, message: bytes) -> bytes:
    """One call by grpcio, of which nothing in the server is a part: the answer's bytes.

    Raises:
        CaseError: the status is not OK; the text carries its code and text.
        CaseSkippedError: grpcio is not installed.
    """
    grpc = import_grpc()
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        try:
            return bytes(channel.unary_unary(path)(message, timeout=ANSWER_SECONDS))
        except grpc.RpcError as error:
            raise CaseError(f"{path} answered {error.code().name} instead of OK: {error.details()}") from None


def check_infer(port: int, message: bytes, output: str, expected: Array) -> int:
    """Send ``message`` once and compare the answer; returns the bytes of a right answer with its prefix.

    Raises:
        CaseError: the status is not OK or the values are not the expected ones.
    """
    raw = ask_unary(port, INFER, message)
    found = read_output(raw, output)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        got, wanted = (f"shape {array.shape}, {array.ravel()[:4]}..." for array in (found, expected))
        raise CaseError(f"{INFER} on port {port} gave a wrong {output}: {got}; expected {wanted}")
    return PREFIX_BYTES + len(raw)


def read_output(raw: bytes, output: str) -> Array:
    """One output of a serialized ``ModelInferResponse`` with raw contents.

    Raises:
        CaseError: the answer has no such output.
    """
    response = message_class("ModelInferResponse").FromString(raw)
    names = [tensor.name for tensor in response.outputs]
    if output not in names or len(response.raw_output_contents) != len(names):
        found = f"{names} with {len(response.raw_output_contents)} raw contents"
        raise CaseError(f"the answer has the outputs {found}, expected {output} among them")
    index = names.index(output)
    tensor = response.outputs[index]
    dtype = NUMPY_TYPES[tensor.datatype]
    return np.frombuffer(response.raw_output_contents[index], dtype).reshape(tuple(tensor.shape))


def import_grpc() -> Any:
    """The grpcio package.

    Raises:
        CaseSkippedError: it is not installed.
    """
    try:
        import grpc
    except ImportError:
        raise CaseSkippedError("grpcio is not installed (pip install grpcio)") from None
    return grpc
