"""Batches of the requests of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .forms import CorrelationId, Form, Forms, aligned
from .protocol import ALIKE, STEP
from .requests import TRITONSERVER_REQUEST_RELEASE_ALL, InferenceRequest

if TYPE_CHECKING:
    from .session import Session

_NO_ID = bytearray()


class StepRequest(InferenceRequest):
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
    form = forms[form_number]
    at = ALIKE.size
    ids_at = at + count * STEP.size
    ids = payload[ids_at : ids_at + id_bytes].split(b"\0") if id_bytes else [_NO_ID] * count
    data = aligned(ids_at + id_bytes)
    stride, layout = form.stride, form.layout
    requests: list[InferenceRequest] = []
    for index, request_id in enumerate(ids):
        request = StepRequest.__new__(StepRequest)
        request._correlation_id, request._flags, _ = STEP.unpack_from(payload, at)
        request._session = session
        request._number = first + index
        request._form = form
        request._places = tuple([(payload, data + offset, size) for offset, size in layout])
        request._id = request_id
        request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        request._inputs = request._sender = request._terms = None
        requests.append(request)
        at += STEP.size
        data += stride
    return requests, form
