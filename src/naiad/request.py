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


class InferRequest:
    """One inference request, checked against its model.

    ``respond`` is what the carrier overrides: it is called on the event loop with either outputs or an error. The
    engine calls it exactly once for a model that is not decoupled.

    Attributes:
        id: the caller's id, "" when none was given.
        inputs: arrays by name; BYTES as object arrays of ``bytes``.
        outputs: names of the requested outputs, in the model's order.
        rows: size of the batch dimension; 1 for a model without one.
        shape_key: equal for two requests whose inputs may be put together into one batch (names, and shapes without
            the batch dimension).
        parameters: custom request parameters.
        timeout_us: the caller's own time limit, 0 for none.
        priority: 0 for the model's default.
        received_ns, queued_ns: monotonic times.
        cancelled: set by ``cancel``; a queued request then leaves the queue, a running batch goes on without it.
    """

    __slots__ = (
        "cancelled",
        "id",
        "inputs",
        "outputs",
        "parameters",
        "priority",
        "queued_ns",
        "received_ns",
        "rows",
        "shape_key",
        "slot",
        "timeout_us",
    )

    def __init__(
        self,
        inputs: Mapping[str, Array],
        outputs: tuple[str, ...],
        *,
        id: str = "",
        rows: int = 1,
        shape_key: object = None,
        parameters: Parameters = NO_PARAMETERS,
        timeout_us: int = 0,
        priority: int = 0,
        received_ns: int = 0,
    ) -> None:
        self.id = id
        self.inputs = inputs
        self.outputs = outputs
        self.rows = rows
        self.shape_key = shape_key
        self.parameters = parameters
        self.timeout_us = timeout_us
        self.priority = priority
        self.received_ns = received_ns
        self.queued_ns = 0
        self.cancelled = False
        self.slot: Any = None

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Answer the caller; exactly one of ``outputs`` and ``error`` counts (``error`` when it is not None)."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Mark the request as given up; the scheduler drops it when it meets it."""
        self.cancelled = True
