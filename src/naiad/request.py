"""Requests and responses of models, independent of the protocol that carried them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

from naiad.errors import InternalError, NaiadError
from naiad.tensor.packed_bytes import PACKED

if TYPE_CHECKING:
    from naiad.shared_memory.spec import RegionOptions
    from naiad.shared_memory.tensor_ref import RegionUse

Array = np.ndarray[Any, Any]
ParameterValue = bool | int | float | str
Parameters = Mapping[str, ParameterValue]

# Shared by all requests without parameters, so it is never changed.
NO_PARAMETERS: Parameters = {}
UNKNOWN_ID = "<id_unknown>"
OBJECT_BYTES = 48
"""The memory of an element of BYTES beside its bytes and its place in an array."""
SEQUENCE_START = 1
SEQUENCE_END = 2


def request_label(request_id: str) -> str:
    """The prefix of every message about one request: ``[request id: 7] ``."""
    return f"[request id: {request_id or UNKNOWN_ID}] "


def memory_of(inputs: Mapping[str, Array]) -> int:
    """The bytes of arrays in memory; elements of BYTES count as Python objects."""
    size = 0
    for array in inputs.values():
        size += array.nbytes
        # Packed strings are one block of bytes, which ``nbytes`` has counted.
        if array.dtype.hasobject and type(array) is not PACKED:
            size += OBJECT_BYTES * array.size + sum(map(len, array.ravel().tolist()))
    return size


class RequestOptions:
    """The options of a request: all but its tensors and its id. Shared by equal requests, so never changed.

    Attributes:
        outputs: names of the requested outputs, in the model's order.
        rows: size of the batch dimension; 1 for a model without one.
        shape_key: equal for two requests that may run in one batch (names of the inputs, and shapes without the batch
            dimension).
        parameters: custom request parameters.
        priority: 0 for the model's default.
        timeout_us: the caller's own time limit, 0 for none.
        flags: ``SEQUENCE_START`` and ``SEQUENCE_END``, combined with "or".
        correlation_id: the sequence that it belongs to; 0 or "" for none.
        regions: its inputs and outputs in regions of clients; None for none. Requests with and without regions never
            run in one batch: their ``shape_key`` differs.
        resident: the outputs that may stay on a device, as ``DeviceTensor``; inputs may be such tensors too. None for
            neither.
        is_group: they are those of a ``RequestGroup``.
    """

    # Other values are those of ``DeviceOptions`` and ``GroupOptions``; here they take no room and no time.
    resident: ClassVar[frozenset[str] | None] = None
    is_group: ClassVar[bool] = False
    # No equality of its own: caches use the identity, which costs no comparison.
    __slots__ = (
        "correlation_id",
        "flags",
        "outputs",
        "parameters",
        "priority",
        "regions",
        "rows",
        "shape_key",
        "timeout_us",
    )

    def __init__(
        self,
        outputs: tuple[str, ...],
        rows: int = 1,
        shape_key: object = None,
        parameters: Parameters = NO_PARAMETERS,
        priority: int = 0,
        timeout_us: int = 0,
        flags: int = 0,
        correlation_id: int | str = 0,
        regions: RegionOptions | None = None,
    ) -> None:
        self.regions = regions
        self.outputs = outputs
        self.rows = rows
        self.shape_key = shape_key
        self.parameters = parameters
        self.priority = priority
        self.timeout_us = timeout_us
        self.flags = flags
        self.correlation_id = correlation_id

    def take_over(self, options: RequestOptions) -> None:
        """Set all fields to those of ``options``."""
        for name in RequestOptions.__slots__:
            setattr(self, name, getattr(options, name))


class DeviceOptions(RequestOptions):
    """The options of a request of an ensemble to a member whose tensors may stay on its device."""

    __slots__ = ("resident",)

    def __init__(self, options: RequestOptions, resident: frozenset[str]) -> None:
        self.take_over(options)
        self.resident: frozenset[str] = resident  # type: ignore[misc]


class RequestTrace(Protocol):
    """The trace of a request that is traced from its beginning, so that its model can add to it.

    Attributes:
        context: the trace for others to continue, as JSON with ``traceparent``; "" where traces are not continued.
    """

    context: str

    def add_activity(self, name: str, at_ns: int) -> None:
        """Add a point of time that the model names."""

    def begin_call(self) -> RequestTrace | None:
        """The trace of a call that the model makes for the request; None when it has had many."""

    def end_call(
        self, request: InferRequest, model: str, version: int, batch: BatchTimes | None, error: NaiadError | None
    ) -> None:
        """End the trace of a call that has its last response: it becomes part of the trace that it began with."""


class TracedOptions(RequestOptions):
    """The options of a request that is traced from its beginning. They belong to this request alone."""

    __slots__ = ("trace",)

    def __init__(self, options: RequestOptions, trace: RequestTrace) -> None:
        self.take_over(options)
        self.trace = trace


class Outputs(dict[str, Array]):
    """Outputs by name of a response with ``parameters``, or with a datatype other than the configured one, which Python
    models are allowed to send.

    Front ends check each array of these; the arrays of a plain dictionary are known to fit.
    """

    __slots__ = ("parameters",)

    def __init__(self, arrays: Mapping[str, Array], parameters: Parameters = NO_PARAMETERS) -> None:
        super().__init__(arrays)
        self.parameters = parameters


class BatchTimes(Protocol):
    """The monotonic times of a batch in nanoseconds; 0 while a stage has not been reached.

    Attributes:
        gather_ns: how long the event loop took to gather its inputs.
        start_ns: when its instance began.
        input_ns: when its inputs were ready.
        infer_ns: when the model had run.
        end_ns: when its outputs were ready.
    """

    gather_ns: int
    start_ns: int
    input_ns: int
    infer_ns: int
    end_ns: int


@dataclass(slots=True, eq=False)
class UnbatchedTimes:
    """``BatchTimes`` of a request that had no batch: by default of one that no model ran for."""

    gather_ns: int = 0
    start_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    end_ns: int = 0


FROM_CACHE: Final[BatchTimes] = UnbatchedTimes()
"""What a request joins whose response comes from the response cache."""


class Recipient(Protocol):
    """The model that runs a request."""

    @property
    def version(self) -> int:
        """The version of the model."""

    def submit(self, request: InferRequest) -> None:
        """Run a checked request."""

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request."""

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Pause a request whose caller does not take the responses: the model should make no further ones for now.

        Responses that were made already are still sent. A model that would block other requests pauses for at most
        ``backpressure_timeout_ms`` milliseconds.
        """

    def resume(self, request: InferRequest) -> None:
        """Resume a request whose caller takes the responses again."""


class InferRequest:
    """One inference request, checked against its model.

    The front end overrides ``respond``, which is called on the event loop with either outputs or an error: exactly once
    for a model that is not decoupled, and once more, with an error, when that call raised. For a decoupled model
    ``respond_part`` is called instead, any number of times, until one call is final.

    Attributes:
        options: shared with equal requests.
        inputs: arrays by name; BYTES as object arrays of ``bytes``. A ``RegionTensor`` may stand for a large one,
            and ``PackedStrings`` for one of BYTES.
        id: the caller's id, "" when none was given.
        received_ns, queued_ns: monotonic times of its arrival and of its submission to the model.
        held_bytes: its bytes in memory that count against the server's bounds.
        can_be_refused: whether those bounds apply. They do not apply to requests that an accepted request makes.
        carrier: the protocol, as traces name it: "HTTP" or "GRPC"; "" for a request of another model.
        use: its regions of clients; None without ``options.regions``.
    """

    __slots__ = ("held_bytes", "id", "inputs", "options", "queued_ns", "received_ns")
    carrier: ClassVar[str] = ""
    can_be_refused: ClassVar[bool] = True
    # Classes of requests with regions set it in each instance; the others need no room for it.
    use: RegionUse | None = None

    def __init__(
        self,
        options: RequestOptions,
        inputs: Mapping[str, Array],
        id: str = "",
        received_ns: int = 0,
        queued_ns: int = 0,
    ) -> None:
        self.options = options
        self.inputs = inputs
        self.id = id
        self.received_ns = received_ns
        self.queued_ns = queued_ns or received_ns
        # Counted once: admission and the end of the request must use the same number.
        self.held_bytes = memory_of(inputs)

    @property
    def memory(self) -> int:
        """The bytes of its inputs in memory, counted once."""
        return self.held_bytes

    @property
    def origin(self) -> InferRequest:
        """The caller's request: this one, or the request from which this one was made."""
        return self

    def take(self) -> int:
        """Note that a batch takes it, and return how many callers wait for it: more than one for a group."""
        return 1

    def singles(self) -> Sequence[InferRequest]:
        """The requests of single callers: this one, or those of a group."""
        return (self,)

    def note_arrival(self, received: list[int], queued: list[int]) -> None:
        """Add ``received_ns`` and ``queued_ns`` to lists, for each caller."""
        received.append(self.received_ns)
        queued.append(self.queued_ns)

    def headers(self) -> Mapping[str, str]:
        """Headers of HTTP or metadata of gRPC, by lower-case name."""
        return {}

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch that the request runs in, where its times are wanted (``ServingModel.note_batches``).

        A request of a client notes ``FROM_CACHE`` with a cached response, and the times of all steps of an ensemble.
        """
        return

    def retarget(self, recipient: Recipient) -> None:
        """Note that ``recipient`` runs the request, another version of the model that it was read for.

        Front ends need it to cancel the request and to name the version in the response.
        """

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Send the response to the caller: ``error`` when it is not None, else ``outputs``."""
        raise NotImplementedError

    def refuse(self, error: NaiadError) -> None:
        """Send the error of a submission, instead of ``respond``: the model is in another process and refuses it."""
        self.respond({}, error)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Send one response of a decoupled model to the caller. An error does not end the request: only ``final`` does.

        Args:
            outputs: of this response; None with an error, or for the end alone.
            error: sent instead of outputs.
            final: no response follows for this request.
        """
        raise InternalError(f"{request_label(self.id)}a model with one response for each request was expected")
