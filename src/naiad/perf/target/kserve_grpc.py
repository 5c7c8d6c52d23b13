"""Servers of the KServe protocol v2 over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from naiad.config.messages import message_class
from naiad.perf.results import ServerParts
from naiad.perf.settings import TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.address import reach, split_url
from naiad.perf.target.grpc_calls import GrpcCallsChannel
from naiad.perf.target.grpc_request import GrpcRequestBytes, GrpcRequestWriter, call_headers
from naiad.perf.target.grpc_streams import GrpcStreamsChannel
from naiad.perf.target.model_text import read_description, read_parts, with_composing
from naiad.perf.target.protocol import ClientChannel, Poller, Problem, ResponseListener, TargetError
from naiad.perf.target.question import query
from naiad.perf.target.region_calls import GrpcRegionCalls, RegionCalls
from naiad.perf.target.tls import tls_context
from naiad.perf.target.validation import KIND, find_difference, grpc_outputs
from naiad.shared_memory.region import RegionRef
from naiad.wire.grpc.messages import prefix
from naiad.wire.grpc.paths import INFERENCE, path

_DEFAULT_PORT: Final = 8001
_DESCRIBE_S: Final = 60.0
_EMPTY_FINAL: Final = "triton_enable_empty_final_response"


class KserveGrpcTarget:
    """A model of a server that is reached over gRPC, by unary calls or by streams."""

    protocol = "grpc"

    def __init__(self, settings: TargetSettings) -> None:
        """Reach the server.

        Raises:
            TargetError: it is not reached.
        """
        self._settings = settings
        self.is_streaming = settings.streaming
        secure, host, port, _ = split_url(settings.url, _DEFAULT_PORT)
        self._address = reach(host, port, tls_context(settings, is_wanted=secure))
        self._model: ModelDescription | None = None
        self._writer: GrpcRequestWriter | None = None

    @property
    def endpoint(self) -> str:
        """Where the server is."""
        return self._address.authority

    def describe(self) -> ModelDescription:
        """Ask the server for the model.

        Raises:
            TargetError: it does not answer, or has no such model.
        """
        settings = self._settings
        described = self._describe(settings.model, settings.version)
        model = self._model = with_composing(described, settings.bls_composing_models, self._describe)
        parameters = dict(settings.request_parameters)
        if settings.streaming:
            parameters[_EMPTY_FINAL] = True
        self._writer = GrpcRequestWriter(
            model, settings.version, settings.compression, parameters, keeps_responses=settings.keeps_responses
        )
        return model

    def _describe(self, name: str, version: str) -> ModelDescription:
        metadata = self._call("ModelMetadata", name, version, f"the request for the model '{name}'")
        try:
            found = self._call("ModelConfig", name, version, f"the request for the configuration of '{name}'")
        except TargetError:
            # The protocol has no configurations: they are an extension.
            found = {}
        return read_description(metadata, found.get("config", {}), self._describe)

    def _call(self, method: str, name: str, version: str, what: str) -> dict[str, Any]:
        message = message_class(f"{method}Request")(name=name, version=version).SerializeToString()
        request = _question(message)
        query(partial(self._open_calls, method, 1), request, f"{what} at {self.endpoint}", _DESCRIBE_S)
        return _as_dict(f"{method}Response", request.body)

    def _send(self, method: str, message: bytes) -> None:
        what = f"the call {method} at {self.endpoint}"
        query(partial(self._open_calls, method, 1), _question(message), what, _DESCRIBE_S)

    def model_config(self) -> dict[str, Any]:
        """The configuration that the server has completed.

        Raises:
            TargetError: it does not answer, or has no such model.
        """
        name, version = self._settings.model, self._settings.version
        found = self._call("ModelConfig", name, version, f"the request for the configuration of '{name}'")
        return dict(found.get("config", {}))

    def load_model(self, config: str | None, on_wait: Callable[[float], None]) -> None:
        """Have the server load the model, and wait for as long as it takes.

        Args:
            config: a configuration as JSON in place of that of the repository; None for that of the repository.
            on_wait: called about twice a second with the seconds so far.

        Raises:
            TargetError: it does not.
        """
        method, name = "RepositoryModelLoad", self._settings.model
        message = message_class(f"{method}Request")(model_name=name)
        if config is not None:
            message.parameters["config"].string_param = config
        request = _question(message.SerializeToString())
        what = f"the load of the model '{name}' at {self.endpoint}"
        query(partial(self._open_calls, method, 1), request, what, None, on_wait)

    def place_tensors(self, outputs: Mapping[str, RegionRef]) -> RegionCalls:
        """Have outputs written to regions; gives the calls that register them. ``describe`` comes first."""
        assert self._writer is not None, "describe comes before place_tensors"
        self._writer.place_outputs(outputs)
        return GrpcRegionCalls(self._send)

    def change_trace(self, settings: Mapping[str, str]) -> None:
        """Have the server trace the model.

        Raises:
            TargetError: it does not.
        """
        message = message_class("TraceSettingRequest")(model_name=self._settings.model)
        for name, value in settings.items():
            message.settings[name].value.extend(value.split(","))
        self._send("TraceSetting", message.SerializeToString())

    def encode(self, step: Step, index: int) -> Any:
        """The bytes of a step; ``describe`` comes first."""
        assert self._writer is not None, "describe comes before encode"
        return self._writer.encode(step, index)

    def outputs_of(self, response: bytes) -> Mapping[str, TensorValue]:
        """The outputs of a response.

        Raises:
            ValueError: it cannot be read.
        """
        try:
            return grpc_outputs(message_class("ModelInferResponse").FromString(response))
        except DecodeError as error:
            raise ValueError(str(error)) from None

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel."""
        if not self.is_streaming:
            return self._open_calls("ModelInfer", places, poller, listener)
        channel = GrpcStreamsChannel(
            self._address,
            poller,
            listener,
            self._headers("ModelStreamInfer"),
            places,
            judge_message,
            waits_for_final=self._model is not None and self._model.is_decoupled,
        )
        channel.connect()
        return channel

    def _open_calls(self, method: str, places: int, poller: Poller, listener: ResponseListener) -> ClientChannel:
        channel = GrpcCallsChannel(self._address, poller, listener, self._headers(method), places, judge_message)
        channel.connect()
        return channel

    def _headers(self, method: str) -> Sequence[tuple[str, str]]:
        return call_headers(path(INFERENCE, method), self._address, self._settings)

    def open_side(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """A channel for ``statistics_request``."""
        return self._open_calls("ModelStatistics", 1, poller, listener)

    def statistics_request(self) -> GrpcRequestBytes:
        """The request for the server's counts: of all models when the model is made of others."""
        message = message_class("ModelStatisticsRequest")()
        if self._model is not None and not self._model.composing:
            message.name, message.version = self._model.name, self._model.version
        return _question(message.SerializeToString())

    def read_statistics(self, body: bytes) -> ServerParts | None:
        """The counts since the start of the server."""
        try:
            found = _as_dict("ModelStatisticsResponse", body)
        except TargetError:
            return None
        return None if self._model is None else read_parts(found, self._model)


def _question(message: bytes) -> GrpcRequestBytes:
    return GrpcRequestBytes(prefix.pack(0, len(message)) + message, keeps_body=True)


def _as_dict(name: str, body: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = MessageToDict(message_class(name).FromString(body), preserving_proto_field_name=True)
    except DecodeError as error:
        raise TargetError(f"the server's {name} cannot be read: {error}") from None
    return found


def judge_message(request: Any, body: bytes) -> Problem | None:
    """The fault of the message of a response; None for a right one."""
    request.body = body
    if not request.expected:
        return None
    try:
        response = message_class("ModelInferResponse").FromString(body)
    except DecodeError as error:
        return KIND, f"the response cannot be read: {error}"
    return find_difference(request.expected, partial(grpc_outputs, response))
