"""Reading a batch of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .forms import Forms, aligned
from .protocol import COUNT, REQUEST
from .requests import InferenceRequest, received_request

if TYPE_CHECKING:
    from .session import Session


class Batch:
    """The requests that one ``execute`` gets.

    Attributes:
        number: the server's number.
        requests: the list that the model is given.
        result: what the model returned.
        ended: the server was told that the batch is over.
    """

    __slots__ = ("ended", "number", "requests", "result")

    def __init__(self, number: int, requests: list[InferenceRequest]) -> None:
        self.number = number
        self.requests = requests
        self.result: Any = None
        self.ended = False

    def forget(self) -> None:
        """Let go of the requests and of the result, which may refer to them. The model may hold them still."""
        self.requests = []
        self.result = None


def read_batch(session: Session, number: int, payload: bytearray, forms: Forms) -> Batch:
    """The batch that an ``EXECUTE`` frame holds; ``forms`` are those that were valid when it came."""
    count, _ = COUNT.unpack_from(payload)
    at = COUNT.size
    described = []
    for _ in range(count):
        request, form_number, id_bytes, _ = REQUEST.unpack_from(payload, at)
        form = forms[form_number]
        at += REQUEST.size
        places = form.places.unpack_from(payload, at)
        at += form.places.size
        described.append((request, form, places, payload[at : at + id_bytes]))
        at += id_bytes
    data = aligned(at)
    locate = session.locate
    requests = [
        received_request(session, request, form, locate(payload, places, data), request_id)
        for request, form, places, request_id in described
    ]
    if session.is_decoupled:
        for item in requests:
            # From here on its end is noticed, however the model treats it.
            item.get_response_sender()
    return Batch(number, requests)
