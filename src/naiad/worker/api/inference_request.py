"""``InferenceRequest``: a request that a model receives, or one that it makes of another model."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Sequence

from ..ipc.client_memory import Parts
from ..ipc.errors import TritonModelException, as_text
from ..ipc.schemas import CorrelationId, Schema, checked_parameters
from ..ipc.types import Place
from . import bls
from .call_options import TRITONSERVER_MEMORY_CPU, BlsCallOptions, InferenceTrace, PreferredMemory
from .response_sender import InferenceResponseSender
from .tensor import Tensor, received

if TYPE_CHECKING:
    from .host import Host

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
_LARGEST_FLAGS = 2**32 - 1
_LARGEST = 2**64 - 1


class InferenceRequest:
    """One request.

    A model receives these in ``execute``; it makes them itself to ask another model, with ``exec`` or ``async_exec``.

    Raises:
        TritonModelException: an input is missing, the name of an output is empty, or a parameter has a wrong type.
        TypeError: another argument has a wrong type, or a number is out of its range.
    """

    __slots__ = (
        "__weakref__",
        "_flags",
        "_host",
        "_id",
        "_inputs",
        "_number",
        "_options",
        "_places",
        "_release_flags",
        "_schema",
        "_sender",
    )

    # A class attribute: a request without regions spends nothing on it.
    _parts: Parts | None = None
    _schema: Schema | None
    _inputs: list[Tensor] | None
    _places: tuple[Place, ...]
    _sender: InferenceResponseSender | None
    _host: Host | None
    _id: str | bytes | bytearray

    def __init__(
        self,
        request_id: str = "",
        correlation_id: CorrelationId = 0,
        # These three are needed; as in the reference they stand behind others that are not.
        inputs: Sequence[Tensor] | None = None,
        requested_output_names: Sequence[str] | None = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Any | None = None,
    ) -> None:
        if correlation_id is None:
            raise TypeError("InferenceRequest: correlation_id must be an int or a str, found None")
        if not isinstance(correlation_id, (int, str)):
            raise TritonModelException("Correlation ID must be integer or string")
        if inputs is None or requested_output_names is None:
            missing = "inputs" if inputs is None else "requested_output_names"
            raise TypeError(f"InferenceRequest: {missing} is missing, expected a list")
        request_id = as_text(request_id, "InferenceRequest: request_id")
        model_name = as_text(model_name, "InferenceRequest: model_name")
        whose = f"for request with id '{request_id}' and model name '{model_name}' should not be empty."
        self._inputs = _checked_inputs(inputs, whose)
        names = _checked_names(requested_output_names, whose)
        self._options: BlsCallOptions | None = BlsCallOptions(
            model_name=model_name,
            model_version=index(model_version),
            outputs=names,
            parameters_json=checked_parameters(parameters),
            correlation_id=(
                correlation_id if isinstance(correlation_id, str) else _checked("correlation_id", correlation_id)
            ),
            timeout_us=_checked("timeout", timeout),
            preferred_memory=preferred_memory or PreferredMemory(TRITONSERVER_MEMORY_CPU, 0),
            trace=trace or InferenceTrace(),
        )
        self._id = request_id
        self._flags = _checked("flags", flags, _LARGEST_FLAGS)
        self._number = 0
        self._schema = self._host = self._sender = None
        self._places = ()
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL

    def __dir__(self) -> list[str]:
        # Models print it; these are the names that the reference has.
        return [name for name in super().__dir__() if name != "preferred_memory"]

    def inputs(self) -> list[Tensor]:
        """The input tensors."""
        return list(self._tensors())

    def request_id(self) -> str:
        """The caller's id, "" when none was given."""
        # Decoded only when the model asks for it.
        if not isinstance(self._id, str):
            self._id = self._id.decode("utf-8", "replace")
        return self._id

    def correlation_id(self) -> CorrelationId:
        """The number or text of the sequence that the request belongs to, 0 without one."""
        return self._facts().correlation_id

    def flags(self) -> int:
        """``TRITONSERVER_REQUEST_FLAG_SEQUENCE_START`` and ``_END``, combined."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Change the flags.

        Raises:
            TypeError: it is no number, or one out of range.
        """
        self._flags = _checked("flags", flags, _LARGEST_FLAGS)

    def timeout(self) -> int:
        """The caller's time limit in microseconds, 0 without one."""
        return self._facts().timeout_us

    def parameters(self) -> str:
        """The parameters as JSON."""
        return self._facts().parameters_json

    def requested_output_names(self) -> set[str]:
        """The names of the wanted outputs."""
        return set(self._facts().outputs)

    def preferred_memory(self) -> PreferredMemory:
        """Where outputs should lie."""
        return self._options.preferred_memory if self._options else PreferredMemory(TRITONSERVER_MEMORY_CPU, 0)

    def trace(self) -> InferenceTrace:
        """The trace of the request."""
        if self._options is not None:
            return self._options.trace
        trace = InferenceTrace()
        trace._context = self._schema.trace if self._schema else None
        trace._parent = self._number
        return trace

    def get_response_sender(self) -> InferenceResponseSender:
        """The object that sends responses to this request.

        Raises:
            TritonModelException: the model made this request itself.
        """
        if self._sender is None:
            host = self._running()
            wanted = self._schema.wanted if self._schema else None
            self._sender = InferenceResponseSender(host, self._number, wanted, self._parts)
        return self._sender

    def is_cancelled(self) -> bool:
        """Whether the caller cancelled the request."""
        return self._host is not None and self._host.is_cancelled(self._number)

    def set_release_flags(self, flags: int) -> None:
        """Say what becomes of the request when ``execute`` returns: ``TRITONSERVER_REQUEST_RELEASE_ALL``, or
        ``TRITONSERVER_REQUEST_RELEASE_RESCHEDULE`` to see it again in a later batch."""
        self._release_flags = int(flags)

    def exec(self, decoupled: bool = False) -> Any:
        """Ask the other model and wait.

        Returns:
            The ``InferenceResponse`` (errors are responses with ``has_error()``); with ``decoupled`` an iterator of all
            responses.

        Raises:
            TritonModelException: not inside ``execute``.
        """
        return bls.execute(self, decoupled)

    def async_exec(self, decoupled: bool = False) -> Any:
        """Like ``exec``, to be awaited."""
        return bls.execute_async(self, decoupled)

    def _tensors(self) -> list[Tensor]:
        inputs = self._inputs
        if inputs is None and self._schema is not None:
            inputs = self._inputs = [received(*t, place) for t, place in zip(self._schema.tensors, self._places)]
        return inputs or []

    def _input(self, name: str) -> Tensor | None:
        for tensor in self._tensors():
            if tensor._name == name:
                return tensor
        return None

    def _facts(self) -> Schema | BlsCallOptions:
        facts = self._schema or self._options
        if facts is None:
            raise TritonModelException("The request has no content")
        return facts

    def _running(self) -> Host:
        if self._host is None:
            raise TritonModelException(
                "Unable to send response. Only a request that the model received has a response sender."
            )
        return self._host


class RegionInferenceRequest(InferenceRequest):
    """A request whose outputs are wanted in regions; models see no difference."""

    __slots__ = ("_parts",)
    _parts: Parts | None


RegionInferenceRequest.__name__ = InferenceRequest.__name__


def received_request(
    host: Host,
    number: int,
    schema: Schema,
    places: tuple[Place, ...],
    request_id: bytearray,
    parts: Parts | None = None,
) -> InferenceRequest:
    """A request of a batch; ``parts``: where its outputs are wanted in regions."""
    if parts is None:
        # Past ``__init__``, which checks the arguments of models.
        request = InferenceRequest.__new__(InferenceRequest)
    else:
        request = placed = RegionInferenceRequest.__new__(RegionInferenceRequest)
        placed._parts = parts
    request._host = host
    request._number = number
    request._schema = schema
    request._places = places
    request._id = request_id
    request._flags = schema.flags
    request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
    request._inputs = request._sender = request._options = None
    return request


def request_with(host: Host, number: int, schema: Schema, tensors: list[Tensor], request_id: str) -> InferenceRequest:
    """A request with these inputs, where the model runs in the server itself; ``schema`` has all but the inputs."""
    request = received_request(host, number, schema, (), bytearray())
    request._inputs = tensors
    request._id = request_id
    return request


def _checked(name: str, value: Any, largest: int = _LARGEST) -> int:
    # numpy's integers pass, floats do not.
    number = index(value)
    if not 0 <= number <= largest:
        raise TypeError(f"InferenceRequest: {name} must be a number from 0 to {largest}, found {number}")
    return number


def _checked_inputs(inputs: Sequence[Tensor], whose: str) -> list[Tensor]:
    for tensor in inputs:
        if tensor is None:
            raise TritonModelException(f"Input tensor {whose}")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"InferenceRequest: inputs must be Tensor objects, found {type(tensor)}")
    return list(inputs)


def _checked_names(names: Sequence[str], whose: str) -> tuple[str, ...]:
    # A text is a sequence of texts as well: its letters would pass for names.
    if isinstance(names, (str, bytes)):
        raise TypeError(f"InferenceRequest: requested_output_names must be a list of names, found one {type(names)}")
    texts = [as_text(name, "InferenceRequest: each of requested_output_names") for name in names]
    if not all(texts):
        raise TritonModelException(f"Requested output name {whose}")
    return tuple(dict.fromkeys(texts))
