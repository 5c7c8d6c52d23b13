"""Batches of the requests of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..api.inference_request import InferenceRequest
from ..ipc.frames import ALIKE, STEP
from ..ipc.schemas import CorrelationId, Form, Forms, aligned
from .uniform_batch import NO_ID, RowRequest, Rows

if TYPE_CHECKING:
    from .session import Session


class StepRequest(RowRequest):
    """A request that says itself to which sequence it belongs; models see no difference."""

    __slots__ = ("_correlation_id",)
    _correlation_id: int

    def correlation_id(self) -> CorrelationId:
        """The number of the sequence, 0 for none."""
        return self._correlation_id


StepRequest.__name__ = InferenceRequest.__name__


def read_steps(session: Session, payload: bytearray, forms: Forms) -> tuple[list[InferenceRequest], Form]:
    """The requests of an ``EXECUTE_STEPS`` frame, and what they have in common."""
    first, count, form_number, id_bytes, _ = ALIKE.unpack_from(payload)
    ids_at = ALIKE.size + count * STEP.size
    ids = payload[ids_at : ids_at + id_bytes].split(b"\0") if id_bytes else [NO_ID] * count
    rows = Rows(payload, aligned(ids_at + id_bytes), count, forms[form_number])
    requests: list[InferenceRequest] = []
    for row, request_id in enumerate(ids):
        request = StepRequest.__new__(StepRequest)
        request._begin(session, first + row, rows, row, request_id)
        request._correlation_id, request._flags, _ = STEP.unpack_from(payload, ALIKE.size + row * STEP.size)
        requests.append(request)
    return requests, rows.form
