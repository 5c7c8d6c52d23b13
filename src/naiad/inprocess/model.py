"""A model of a server in this process: requests to it, and what it says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import Any, TypedDict, Unpack

from naiad.config.export import config_json
from naiad.errors import InvalidArgumentError
from naiad.inprocess.engine_thread import EngineThread
from naiad.inprocess.inbox import check_version
from naiad.inprocess.request import GivenTensor, LocalRequest, PendingRequest, schema_of
from naiad.inprocess.responses import AsyncResponses, Responses
from naiad.request import Array, ParameterValue
from naiad.tensor.dtypes import DataType
from naiad.tensor.input_array import input_array


class RequestArguments(TypedDict, total=False):
    """What ``infer`` takes: the attributes of a request."""

    request_id: str | None
    flags: int
    correlation_id: int | str | None
    priority: int
    timeout: int
    inputs: Mapping[str, Any]
    parameters: Mapping[str, ParameterValue]
    outputs: Sequence[str]
    output_memory_type: str | None


class Model:
    """A model by name; ``Server.model`` makes it. It need not be loaded.

    Any thread may use it. A model that is not ready fails the requests to it. ``state`` and ``reason`` are those that
    ``Server.models`` has seen, None for a model that it had no state of.
    """

    def __init__(
        self,
        engine: EngineThread,
        name: str,
        version: int | str = -1,
        state: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._engine = engine
        self.name = name
        self.version = version
        self.state = state
        self.reason = reason
        self._version = check_version(version)
        self._datatypes: Mapping[str, DataType] | None = None

    def __repr__(self) -> str:
        return str({"name": self.name, "version": self.version, "state": self.state})

    def create_request(self, **arguments: Unpack[RequestArguments]) -> LocalRequest:
        """A request, which ``infer`` takes any number of times."""
        return LocalRequest(self, **arguments)

    def infer(
        self,
        inference_request: LocalRequest | None = None,
        raise_on_error: bool = True,
        **arguments: Unpack[RequestArguments],
    ) -> Responses:
        """Send a request and return at once; the iterator waits for the responses.

        Args:
            inference_request: the request; None to make one of ``arguments``.
            raise_on_error: the iterator raises the error of a request that fails, rather than to return it.
            arguments: ``inputs={"x": array}``, and the other attributes of a request.

        Raises:
            InvalidArgumentError: the request is wrong in itself. What is wrong for the model comes from the iterator.
            UnavailableError: the server is not started, or stopped.
        """
        request = LocalRequest(self, **arguments) if inference_request is None else inference_request
        responses = Responses(self, request.request_id, raise_on_error, self._engine.inbox)
        self._send(request, responses)
        return responses

    def async_infer(
        self,
        inference_request: LocalRequest | None = None,
        raise_on_error: bool = True,
        **arguments: Unpack[RequestArguments],
    ) -> AsyncResponses:
        """Send a request from a running event loop; the asynchronous iterator waits for the responses.

        Arguments and errors as ``infer``.
        """
        request = LocalRequest(self, **arguments) if inference_request is None else inference_request
        responses = AsyncResponses(self, request.request_id, raise_on_error, self._engine.inbox)
        self._send(request, responses)
        return responses

    def _send(self, request: LocalRequest, responses: Responses | AsyncResponses) -> None:
        received_ns = monotonic_ns()
        arrays: dict[str, Array] = {}
        given: list[GivenTensor] = []
        for name, value in request.inputs.items():
            declared = None if hasattr(value, "dtype") else self._declared(name)
            array, datatype = input_array(name, value, declared)
            arrays[name] = array
            given.append(GivenTensor(name, datatype, array.shape))
        schema = schema_of(request, tuple(given))
        request_id = request.request_id or ""
        pending = PendingRequest(
            self.name, self._version, schema, arrays, request_id, received_ns, responses.receiver()
        )
        responses.flow.begin(pending)
        self._engine.inbox.post(pending)

    def _declared(self, name: str) -> DataType | None:
        """The datatype of an input, for values that have none of their own."""
        if self._datatypes is None:
            found = self._engine.find(self.name, self._version)
            self._datatypes = {tensor.name: tensor.dtype for tensor in found.spec.inputs.values()}
        return self._datatypes.get(name)

    # What it says of itself

    def ready(self) -> bool:
        """Whether it can serve requests."""
        return self._engine.read(lambda engine: engine.is_model_ready(self.name, self._version))

    def metadata(self) -> dict[str, Any]:
        """Its inputs and outputs; errors as ``Server.model`` of an unknown model."""
        found = self._engine.read(lambda engine: engine.model_metadata(self.name, self._version))
        return found | {
            side: [{**tensor, "shape": list(tensor["shape"])} for tensor in found[side]]
            for side in ("inputs", "outputs")
        }

    def config(self, config_version: int = 1) -> dict[str, Any]:
        """Its completed configuration.

        Raises:
            InvalidArgumentError: ``config_version`` is not 1.
            NotFoundError: there is no such model.
        """
        if config_version != 1:
            raise InvalidArgumentError(
                f"model configuration version {config_version} not supported, supported versions are: 1"
            )
        found: dict[str, Any] = json.loads(
            self._engine.read(lambda engine: config_json(engine.model_config(self.name, self._version)))
        )
        return found

    def statistics(self) -> dict[str, Any]:
        """Its counters, as the statistics of the protocol."""
        return self._engine.read(lambda engine: engine.statistics(self.name, self._version))
