"""TensorFlow Serving over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError

from naiad.perf.settings import InputSettings, TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.address import reach, split_url
from naiad.perf.target.grpc_calls import GrpcCallsChannel
from naiad.perf.target.grpc_request import GrpcRequestBytes, call_headers, framed
from naiad.perf.target.protocol import ClientChannel, Poller, Problem, ResponseListener, TargetError
from naiad.perf.target.question import query
from naiad.perf.target.services.body_service import WholeStep
from naiad.perf.target.services.plain_service import PlainService
from naiad.perf.target.services.predict_messages import DTYPES, SERVICE, serving_message
from naiad.perf.target.services.predict_tensors import read_tensor_message, tensor_message
from naiad.perf.target.services.signature import (
    DATATYPES,
    Signature,
    SignatureTensor,
    chosen_signature,
    describe_signature,
)
from naiad.perf.target.tls import tls_context
from naiad.perf.target.validation import find_difference
from naiad.wire.grpc.paths import path

_PORT: Final = 8500
_DESCRIBE_S: Final = 60.0


class TfServingGrpcTarget(PlainService):
    """A signature of a SavedModel, by the call ``Predict``."""

    protocol = "grpc"

    def __init__(self, settings: TargetSettings, inputs: InputSettings) -> None:
        """Reach the server.

        Raises:
            TargetError: it is not reached.
        """
        super().__init__(settings)
        self._inputs = inputs
        secure, host, port, _ = split_url(settings.url, _PORT)
        self._address = reach(host, port, tls_context(settings, is_wanted=secure))

    @property
    def endpoint(self) -> str:
        """Where the server is."""
        return self._address.authority

    def describe(self) -> ModelDescription:
        """Ask the server for the model's signature.

        Raises:
            TargetError: the server does not respond, or the model, the signature or its form does not fit the options.
        """
        request = serving_message("GetModelMetadataRequest")(metadata_field=["signature_def"])
        self._name_model(request.model_spec)
        question = GrpcRequestBytes(framed(request.SerializeToString(), "none"), keeps_body=True)
        what = f"the request for the metadata of '{self._settings.model}' at {self.endpoint}"
        query(partial(self._open_calls, "GetModelMetadata", 1), question, what, _DESCRIBE_S)
        try:
            signature = _read_signature(question.body, self._settings.model_signature_name)
        except (DecodeError, LookupError) as error:
            raise TargetError(f"{what} gave no signature: {error}") from None
        return describe_signature(self._settings.model, signature, self._inputs)

    def _name_model(self, spec: Any) -> None:
        spec.name, version = self._settings.model, self._settings.version
        if version.isdigit():
            spec.version.value = int(version)
        elif version:
            spec.version_label = version

    def encode(self, step: Step, index: int) -> WholeStep[GrpcRequestBytes]:
        """The tensors of a step as a message.

        Raises:
            TargetError: the API has no such tensor.
        """
        request = serving_message("PredictRequest")()
        self._name_model(request.model_spec)
        request.model_spec.signature_name = self._settings.model_signature_name
        for value in step.inputs:
            request.inputs[value.name].CopyFrom(tensor_message(value))
        message = framed(request.SerializeToString(), self._settings.compression)
        keeps = self._settings.keeps_responses
        return WholeStep(GrpcRequestBytes(message, index, step.expected, keeps_body=keeps))

    def outputs_of(self, response: bytes) -> Mapping[str, TensorValue]:
        """The outputs of a response.

        Raises:
            ValueError, LookupError: it cannot be read.
        """
        try:
            outputs = serving_message("PredictResponse").FromString(response).outputs
        except DecodeError as error:
            raise ValueError(str(error)) from None
        return {name: read_tensor_message(name, outputs[name]) for name in outputs}

    def judge(self, request: Any, body: bytes) -> Problem | None:
        """The fault of the message of a response; None for a right one."""
        request.body = body
        return find_difference(request.expected, partial(self.outputs_of, body)) if request.expected else None

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel."""
        return self._open_calls("Predict", places, poller, listener)

    def open_side(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """A channel with one place."""
        return self._open_calls("Predict", 1, poller, listener)

    def _open_calls(self, method: str, places: int, poller: Poller, listener: ResponseListener) -> ClientChannel:
        headers = call_headers(path(SERVICE, method), self._address, self._settings)
        channel = GrpcCallsChannel(self._address, poller, listener, headers, places, self.judge)
        channel.connect()
        return channel


def _read_signature(body: bytes, name: str) -> Signature:
    response = serving_message("GetModelMetadataResponse").FromString(body)
    definitions = serving_message("SignatureDefMap").FromString(response.metadata["signature_def"].value)
    chosen = chosen_signature(definitions.signature_def, name)
    return Signature(str(response.model_spec.version.value), _tensors(chosen.inputs), _tensors(chosen.outputs))


def _tensors(entries: Mapping[str, Any]) -> tuple[SignatureTensor, ...]:
    return tuple(_tensor(name, entries[name]) for name in sorted(entries))


def _tensor(name: str, entry: Any) -> SignatureTensor:
    dtype = DTYPES.get(entry.dtype, str(entry.dtype))
    shape = None if entry.tensor_shape.unknown_rank else tuple(dim.size for dim in entry.tensor_shape.dim)
    return SignatureTensor(name, DATATYPES.get(dtype, dtype), shape)
