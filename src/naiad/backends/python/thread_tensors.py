"""Requests and responses of a Python model in a thread: the server's arrays as tensors of ``pb_utils``, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backend_api.request_batch import RequestResult
from naiad.backends.python.device_tensors import input_tensor, resident_output
from naiad.bounded_dict import BoundedDict
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError, error_of_code
from naiad.execution.batching.reshape import as_clients_get, as_model_sees
from naiad.execution.worker.codec.output_warnings import OutputWarnings
from naiad.gpus.lost import lost_gpus
from naiad.request import NO_PARAMETERS, Array, InferRequest, Outputs, RequestOptions
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.device_tensor import Device, DeviceTensor
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.tensor.packed_bytes import PackedStrings, as_strings, stays_packed, unpacked
from naiad.worker.api.inference_request import InferenceRequest, request_with
from naiad.worker.api.inference_response import InferenceResponse
from naiad.worker.api.tensor import Tensor, made_of, received
from naiad.worker.ipc import datatypes
from naiad.worker.ipc.errors import GRPC_CODES, FailedError
from naiad.worker.ipc.schemas import Schema
from naiad.worker.runtime.output_warnings import UnexpectedOutputs

if TYPE_CHECKING:
    from naiad.worker.api.host import Host

_MOST_SCHEMAS: Final = 256


class ThreadTensors:
    """Makes the requests that one instance gets, and reads the responses that it returns.

    Args:
        arguments: what the model's ``initialize`` gets.
        host: of the model.
        device: where tensors may come from and stay, None for the processor's memory.
    """

    def __init__(self, spec: ModelSpec, arguments: Mapping[str, Any], host: Host, device: Device | None = None) -> None:
        self._spec = spec
        self._device = device
        self._host = host
        self._unexpected = UnexpectedOutputs(host.log)
        self._unexpected.compare_with(arguments)
        self._warnings = OutputWarnings(spec)
        self._seen: dict[str, tuple[object, tuple[int, ...]]] = {}
        # By identity: requests with one plan share their options.
        self._schemas: dict[RequestOptions, Schema] = BoundedDict(_MOST_SCHEMAS)

    def request(self, number: int, request: InferRequest) -> InferenceRequest:
        """A request as the model gets it. Its arrays are read-only, as others may have them, too."""
        schema = self._schemas.get(request.options)
        if schema is None:
            schema = self._schemas[request.options] = _schema(request.options)
        tensors = [self._input(name, array) for name, array in request.inputs.items()]
        return request_with(self._host, number, schema, tensors, request.id)

    def number(self, request: InferenceRequest) -> int:
        """The number that ``request`` was given."""
        return request._number

    def _input(self, name: str, array: Array | DeviceTensor) -> Tensor:
        if isinstance(array, DeviceTensor):
            if (there := input_tensor(name, array, self._device)) is not None:
                return there
            array = np.asarray(array)
        described = self._spec.inputs.get(name)
        array = unpacked(array)
        if described is not None and described.reshape is not None:
            array = array.reshape(as_model_sees(array.shape, described, self._spec))
        datatype = datatypes.BY_WIRE[described.dtype.wire] if described is not None else datatypes.of_numpy(array.dtype)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        if datatype is datatypes.BF16:
            # ``as_numpy`` has to refuse it, so it is given as bytes.
            flat = array.reshape(-1).view(np.uint8)
            flat.flags.writeable = False
            return received(name, datatype, array.shape, (flat, 0, flat.nbytes))
        view = array.view()
        view.flags.writeable = False
        return made_of(name, datatype, view.shape, view)

    def result(self, response: InferenceResponse | None, request: InferRequest) -> RequestResult:
        """What a response holds. Its arrays are copied, since the model may use its own again."""
        if response is None:
            text = "a request is rescheduled in a model with sequence_batching only"
            return RequestResult(None, BackendError(f"model '{self._spec.name}': {text}"))
        error = response.error()
        if error is not None:
            code = GRPC_CODES.get(error.code(), 13)
            return self._failed(error_of_code(code, error.message()), not isinstance(error, FailedError))
        try:
            return RequestResult(self._outputs(response, request))
        except NaiadError as wrong:
            return self._failed(wrong)
        except Exception as problem:
            text = f"Failed to read the output tensors of a response: {type(problem).__name__}: {problem}"
            return self._failed(BackendError(text))

    def _failed(self, error: NaiadError, is_own: bool = False) -> RequestResult:
        lost = lost_gpus.after(self._spec.name, error)
        return RequestResult(None, error, is_own) if lost is None else RequestResult(None, lost)

    def missing(self, instance: str) -> RequestResult:
        """The result of a request that has got no response."""
        return RequestResult(None, BackendError(f"model '{self._spec.name}': '{instance}' gave no response"))

    def _outputs(self, response: InferenceResponse, request: InferRequest) -> Mapping[str, Array]:
        # Arrays, and tensors that stay on a device.
        found: dict[str, Any] = {}
        text = response.parameters()
        parameters = json.loads(text) if text != "{}" else NO_PARAMETERS
        fits = not parameters
        wanted, resident = request.options.outputs, request.options.resident or frozenset()
        for tensor in response.output_tensors():
            name = tensor.name()
            described = self._spec.outputs.get(name)
            if described is None:
                self._unexpected.look_at((tensor,))
                continue
            if name not in wanted:
                continue
            datatype = BY_WIRE[tensor._type.wire]
            if self._seen.get(name) != (datatype, tensor._shape):
                self._seen[name] = (datatype, tensor._shape)
                self._warnings.look_at(name, datatype, tensor._shape)
            fits = fits and datatype is described.dtype
            if self._device is not None and name in resident:
                there = resident_output(tensor, datatype.numpy, self._device)
                if there is not None:
                    found[name] = there
                    continue
            array = _copied(tensor, datatype, f"output '{name}' of model '{self._spec.name}'")
            if described.reshape is not None:
                shape = as_clients_get(tensor._shape, described, self._spec)
                if -1 not in shape and math.prod(shape) == array.size:
                    array = array.reshape(shape)
            found[name] = array
        return found if fits else Outputs(found, parameters)


def _schema(options: RequestOptions) -> Schema:
    content: dict[str, Any] = {"inputs": [], "outputs": options.outputs, "parameters": dict(options.parameters)}
    content |= {"timeout_us": options.timeout_us, "flags": options.flags, "correlation_id": options.correlation_id}
    return Schema(content)


def _copied(tensor: Tensor, datatype: DataType, place: str) -> Array:
    if not datatype.is_bytes and tensor._array is not None:
        return np.array(tensor._array, datatype.numpy, order="C")
    data, size = tensor._payload()
    raw = memoryview(data).tobytes()[:size]
    elements = math.prod(tensor._shape)
    if datatype.is_bytes:
        if stays_packed(size, elements):
            return as_strings(PackedStrings(raw, tensor._shape, place))
        return decode_bytes(raw, elements, place).reshape(tensor._shape)
    return np.frombuffer(raw, datatype.numpy).reshape(tensor._shape)
