"""A request of the program to a model in its own process, and its way to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol

from naiad.errors import InvalidArgumentError, NaiadError
from naiad.request import Array, InferRequest, ParameterValue, Recipient, RequestOptions
from naiad.tensor.dtypes import DataType

Deliver = Callable[[Mapping[str, Array] | None, NaiadError | None, bool], None]
"""Takes a response on the event loop: outputs or an error, and whether it is the last one."""


class NamedModel(Protocol):
    """The model of a request and of its responses; in fact a ``Model``."""

    name: str
    version: int | str


@dataclass(slots=True)
class LocalRequest:
    """An inference request; ``naiad.api.InferenceRequest``.

    Attributes:
        model: the model.
        request_id: the caller's id.
        flags: 1 for the start of a sequence, 2 for its end, 3 for both.
        correlation_id: of its sequence.
        priority: 0 for the model's default.
        timeout: how long it may wait in the queue, in microseconds; 0 for the model's default.
        inputs: arrays, lists or strings by name.
        parameters: custom parameters.
        outputs: the names of the wanted outputs; empty for all.
        output_memory_type: ``"cpu"`` or None, which mean the same: outputs are in the program's memory.
    """

    model: NamedModel
    request_id: str | None = None
    flags: int = 0
    correlation_id: int | str | None = None
    priority: int = 0
    timeout: int = 0
    inputs: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    output_memory_type: str | None = None


class GivenTensor(NamedTuple):
    """An input as the check of requests wants it."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]


class RequestSchema(NamedTuple):
    """All of a request but its elements and its id: equal schemas share what was found out about them."""

    inputs: tuple[GivenTensor, ...]
    outputs: tuple[str, ...]
    parameters: tuple[tuple[str, ParameterValue], ...]
    priority: int
    timeout_us: int
    flags: int
    correlation_id: int | str


class PendingRequest:
    """A request on its way to the engine; made by the caller's thread.

    Attributes:
        submitted: what the engine runs, once it does.
        is_cancelled: the caller has given it up.
    """

    __slots__ = ("arrays", "deliver", "id", "is_cancelled", "name", "received_ns", "schema", "submitted", "version")

    def __init__(
        self,
        name: str,
        version: str,
        schema: RequestSchema,
        arrays: Mapping[str, Array],
        id: str,
        received_ns: int,
        deliver: Deliver,
    ) -> None:
        self.name = name
        self.version = version
        self.schema = schema
        self.arrays = arrays
        self.id = id
        self.received_ns = received_ns
        self.deliver = deliver
        self.submitted: SubmittedRequest | None = None
        self.is_cancelled = False

    def take(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Deliver a response; called on the event loop."""
        deliver = self.deliver
        if final:
            # Whoever takes responses refers to this: the cycle is cut, so that the tensors are freed at once.
            self.deliver = _nothing
            self.submitted = None
        deliver(outputs, error, final)


class SubmittedRequest(InferRequest):
    """A request that a model runs.

    Attributes:
        recipient: the model, for a cancellation.
    """

    __slots__ = ("_pending", "recipient")

    def __init__(
        self, pending: PendingRequest, options: RequestOptions, inputs: Mapping[str, Array], recipient: Recipient
    ) -> None:
        super().__init__(options, inputs, pending.id, pending.received_ns)
        self._pending = pending
        self.recipient = recipient

    def retarget(self, recipient: Recipient) -> None:
        """Note another version."""
        self.recipient = recipient

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Deliver the one response."""
        self._pending.take(outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Deliver one of several responses."""
        self._pending.take(outputs, error, final)


def _nothing(outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
    """Stands in for what took the responses of a request that is complete."""


_PARAMETERS: Final = (str, int, bool, float)
_SEQUENCE: Final = (int, str, NoneType)
_LONGEST: Final = 1 << 63


def _check_names(request: LocalRequest) -> None:
    """Refuse here what would fail as an internal error on the way to the model."""
    if request.request_id and not isinstance(request.request_id, str):
        raise InvalidArgumentError(f"request_id is {request.request_id!r}, expected a text")
    sequence = request.correlation_id
    if type(sequence) not in _SEQUENCE or (type(sequence) is int and not 0 <= sequence < 2 * _LONGEST):
        raise InvalidArgumentError(f"correlation_id is {sequence!r}, expected a text or a whole number from 0 on")
    if isinstance(request.outputs, str):
        raise InvalidArgumentError(f"outputs is {request.outputs!r}, expected a list of names")
    if not request.parameters:
        return
    for name, value in request.parameters.items():
        if type(name) is not str or type(value) not in _PARAMETERS:
            raise InvalidArgumentError(f"the parameter {name!r} is {value!r}, expected a text, a number or a boolean")
        if type(value) is int and not -_LONGEST <= value < _LONGEST:
            raise InvalidArgumentError(f"the parameter {name!r} is {value}, expected a number of 64 bits")


def schema_of(request: LocalRequest, given: tuple[GivenTensor, ...]) -> RequestSchema:
    """The schema of a request with the inputs ``given``.

    Raises:
        InvalidArgumentError: an attribute of the request has a wrong type, or a number is negative.
    """
    _check_names(request)
    if request.output_memory_type is not None and str(request.output_memory_type).lower() not in ("cpu", "cpu:0"):
        raise InvalidArgumentError(
            f"output_memory_type is {request.output_memory_type!r}, expected 'cpu': outputs are in the program's memory"
        )
    for name, value in (("flags", request.flags), ("priority", request.priority), ("timeout", request.timeout)):
        if type(value) is not int or value < 0:
            raise InvalidArgumentError(f"{name} is {value!r}, expected a whole number from 0 on")
    return RequestSchema(
        given,
        tuple(request.outputs),
        tuple(request.parameters.items()) if request.parameters else (),
        request.priority,
        request.timeout,
        request.flags,
        request.correlation_id or 0,
    )
