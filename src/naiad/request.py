"""The request and the response as the engine sees them, whichever protocol carried them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from naiad.errors import InternalError, NaiadError

Array = np.ndarray[Any, Any]
ParameterValue = bool | int | float | str
Parameters = Mapping[str, ParameterValue]

NO_PARAMETERS: Parameters = {}
UNKNOWN_ID = "<id_unknown>"
SEQUENCE_START = 1
SEQUENCE_END = 2


def request_label(request_id: str) -> str:
    """The prefix of every message about one request: ``[request id: 7] ``."""
    return f"[request id: {request_id or UNKNOWN_ID}] "


class RequestTerms:
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
    """

    __slots__ = ("correlation_id", "flags", "outputs", "parameters", "priority", "rows", "shape_key", "timeout_us")

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
    ) -> None:
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


class Recipient(Protocol):
    """Who runs a request."""

    @property
    def version(self) -> int:
        """The version of the model that answers."""

    def submit(self, request: InferRequest) -> None:
        """Take a checked request in."""

    def cancel(self, request: InferRequest) -> None:
        """Give a request up."""


class InferRequest:
    """One inference request, checked against its model.

    ``respond`` is what the carrier overrides: it is called on the event loop with either outputs or an error. The
    engine calls it exactly once for a model that is not decoupled; once more, with an error, when that call raised.
    For a decoupled model it calls ``respond_part`` instead, any number of times, until one is final.

    Attributes:
        terms: what it asks for.
        inputs: arrays by name; BYTES as object arrays of ``bytes``.
        id: the caller's id, "" when none was given.
        received_ns, queued_ns: monotonic times of its arrival and of its being handed to the model.
        carrier: what brought it, as traces name it: "HTTP" or "GRPC"; "" for a request of another model.
    """

    __slots__ = ("id", "inputs", "queued_ns", "received_ns", "terms")
    carrier: ClassVar[str] = ""

    def __init__(
        self, terms: RequestTerms, inputs: Mapping[str, Array], id: str = "", received_ns: int = 0, queued_ns: int = 0
    ) -> None:
        self.terms = terms
        self.inputs = inputs
        self.id = id
        self.received_ns = received_ns
        self.queued_ns = queued_ns or received_ns

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
