"""The request and the response as the engine sees them, whichever protocol carried them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from naiad.errors import NaiadError

Array = np.ndarray[Any, Any]
ParameterValue = bool | int | float | str
Parameters = Mapping[str, ParameterValue]

NO_PARAMETERS: Parameters = {}
UNKNOWN_ID = "<id_unknown>"


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
    """

    __slots__ = ("outputs", "parameters", "priority", "rows", "shape_key", "timeout_us")

    def __init__(
        self,
        outputs: tuple[str, ...],
        rows: int = 1,
        shape_key: object = None,
        parameters: Parameters = NO_PARAMETERS,
        priority: int = 0,
        timeout_us: int = 0,
    ) -> None:
        self.outputs = outputs
        self.rows = rows
        self.shape_key = shape_key
        self.parameters = parameters
        self.priority = priority
        self.timeout_us = timeout_us


class InferRequest:
    """One inference request, checked against its model.

    ``respond`` is what the carrier overrides: it is called on the event loop with either outputs or an error. The
    engine calls it exactly once for a model that is not decoupled; once more, with an error, when that call raised.

    Attributes:
        terms: what it asks for.
        inputs: arrays by name; BYTES as object arrays of ``bytes``.
        id: the caller's id, "" when none was given.
        received_ns, queued_ns: monotonic times of its arrival and of its being handed to the model.
    """

    __slots__ = ("id", "inputs", "queued_ns", "received_ns", "terms")

    def __init__(
        self, terms: RequestTerms, inputs: Mapping[str, Array], id: str = "", received_ns: int = 0, queued_ns: int = 0
    ) -> None:
        self.terms = terms
        self.inputs = inputs
        self.id = id
        self.received_ns = received_ns
        self.queued_ns = queued_ns or received_ns

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Answer the caller; exactly one of ``outputs`` and ``error`` counts (``error`` when it is not None)."""
        raise NotImplementedError
