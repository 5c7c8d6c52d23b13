"""Batches of the requests of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..api.inference_request import InferenceRequest
from ..ipc.frames import STEP, UNIFORM
from ..ipc.schemas import CorrelationId, Forms, Schema, aligned
from .uniform_batch import NO_ID, UniformRequest, UniformRows

if TYPE_CHECKING:
    from ..api.host import Host


class UniformSequenceRequest(UniformRequest):
    """A request that says itself to which sequence it belongs; models see no difference."""

    __slots__ = ("_correlation_id",)
    _correlation_id: int

    def correlation_id(self) -> CorrelationId:
        """The number of the sequence, 0 for none."""
        return self._correlation_id


UniformSequenceRequest.__name__ = InferenceRequest.__name__


def read_steps(host: Host, payload: bytearray, forms: Forms) -> tuple[list[InferenceRequest], Schema]:
    """The requests of an ``EXECUTE_STEPS`` frame, and what they have in common."""
    first, count, form_number, id_bytes, _ = UNIFORM.unpack_from(payload)
    ids_at = UNIFORM.size + count * STEP.size
    ids = payload[ids_at : ids_at + id_bytes].split(b"\0") if id_bytes else [NO_ID] * count
    rows = UniformRows(payload, aligned(ids_at + id_bytes), count, forms[form_number])
    requests: list[InferenceRequest] = []
    for row, request_id in enumerate(ids):
        request = UniformSequenceRequest.__new__(UniformSequenceRequest)
        request._begin(host, first + row, rows, row, request_id)
        request._correlation_id, request._flags, _ = STEP.unpack_from(payload, UNIFORM.size + row * STEP.size)
        requests.append(request)
    return requests, rows.form
