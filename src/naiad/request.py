"""The request and the response as the engine sees them, whichever protocol carried them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from naiad.errors import InternalError, NaiadError
from naiad.tensor.packed_bytes import PACKED

if TYPE_CHECKING:
    from naiad.shared_memory.spec import RegionOptions
    from naiad.shared_memory.tensor_ref import RegionUse

Array = np.ndarray[Any, Any]
ParameterValue = bool | int | float | str
Parameters = Mapping[str, ParameterValue]

NO_PARAMETERS: Parameters = {}
UNKNOWN_ID = "<id_unknown>"
OBJECT_BYTES = 48
"""What an element of BYTES costs beside its bytes and its place in an array."""
SEQUENCE_START = 1
SEQUENCE_END = 2


def request_label(request_id: str) -> str:
    """The prefix of every message about one request: ``[request id: 7] ``."""
    return f"[request id: {request_id or UNKNOWN_ID}] "


def memory_of(inputs: Mapping[str, Array]) -> int:
    """The bytes that inputs hold, those of BYTES as the objects that they are."""
    size = 0
    for array in inputs.values():
        size += array.nbytes
        if array.dtype.hasobject and type(array) is not PACKED:
            size += OBJECT_BYTES * array.size + sum(map(len, array.ravel().tolist()))
    return size


class RequestOptions:
    """What a request asks for, apart from its tensors and its id. Shared by all requests alike: never changed.

    Attributes:
        outputs: names of the requested outputs, in the model's order.
        rows: size of the batch dimension; 1 for a model without one.
        shape_key: equal for two requests whose inputs may be put together into one batch (names, and shapes without
            the batch dimension).
        parameters: custom request parameters.
        priority: 0 for the model's default.
        timeout_us: the caller's own time limit, 0 for none.
        flags: ``SEQUENCE_START`` and ``SEQUENCE_END``, put together with "or".
        correlation_id: the sequence that it belongs to; 0 or "" for none.
        regions: what it says about regions of clients; None for nothing. Requests with and without are never put
            together: their ``shape_key`` differs.
    """

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


class Outputs(dict[str, Array]):
    """Outputs by name that are not of the ordinary: the response has ``parameters``, or a datatype may differ from the
    configured one, which Python models are allowed to do.

    Carriers look at each array of these; of a plain dictionary they take for granted that its arrays fit.
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
        input_ns: when its inputs were there.
        infer_ns: when the model had run.
        end_ns: when its outputs were ready.
    """

    gather_ns: int
    start_ns: int
    input_ns: int
    infer_ns: int
    end_ns: int


class Recipient(Protocol):
    """Who runs a request."""

    @property
    def version(self) -> int:
        """The version of the model that answers."""

    def submit(self, request: InferRequest) -> None:
        """Take a checked request in."""

    def cancel(self, request: InferRequest) -> None:
        """Give a request up."""

    def hold(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """The caller does not take the responses to a request: no further ones should be made for now.

        Those that are under way come still. A model that cannot stop without holding others up stops for at most
        ``backpressure_timeout_ms`` milliseconds.
        """

    def go_on(self, request: InferRequest) -> None:
        """The caller takes the responses to a request again."""


class InferRequest:
    """One inference request, checked against its model.

    ``respond`` is what the carrier overrides: it is called on the event loop with either outputs or an error. The
    engine calls it exactly once for a model that is not decoupled; once more, with an error, when that call raised.
    For a decoupled model it calls ``respond_part`` instead, any number of times, until one is final.

    Attributes:
        terms: what it asks for.
        inputs: arrays by name; BYTES as object arrays of ``bytes``. A ``RegionTensor`` may stand for a large one,
            and ``PackedStrings`` for one of BYTES.
        id: the caller's id, "" when none was given.
        received_ns, queued_ns: monotonic times of its arrival and of its being handed to the model.
        held_bytes: what it holds in memory, as far as it counts against the server's bounds.
        can_be_refused: whether those bounds apply. What a request that was accepted has begun goes on.
        carrier: what brought it, as traces name it: "HTTP" or "GRPC"; "" for a request of another model.
        use: what it has to do with regions of clients; None where its terms say nothing about any.
    """

    __slots__ = ("held_bytes", "id", "inputs", "options", "queued_ns", "received_ns")
    carrier: ClassVar[str] = ""
    can_be_refused: ClassVar[bool] = True
    # Requests with regions are of classes that have it as an attribute of their own.
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
        self.held_bytes = memory_of(inputs)

    @property
    def memory(self) -> int:
        """What its inputs take in memory, known without counting them again and again."""
        return self.held_bytes

    @property
    def origin(self) -> InferRequest:
        """The request of a caller: this one, or the one that this was made of."""
        return self

    def headers(self) -> Mapping[str, str]:
        """What the caller said beside the request, by lower-case name (headers of HTTP, metadata of gRPC)."""
        return {}

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch that the request runs in, where its times are wanted (``ServingModel.note_batches``)."""
        return

    def aim(self, recipient: Recipient) -> None:
        """The request goes to ``recipient``, which takes the same as the one that it was read for.

        Carriers that cancel, or say which version answered, have to know.
        """

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Answer the caller; exactly one of ``outputs`` and ``error`` counts (``error`` when it is not None)."""
        raise NotImplementedError

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Take one response of a decoupled model. An error is no end: only ``final`` is.

        Args:
            outputs: of this response; None when it is only the end (or when there is an error).
            error: what failed, instead of outputs.
            final: nothing follows for this request.
        """
        raise InternalError(f"{request_label(self.id)}a model with one response for each request was expected")
