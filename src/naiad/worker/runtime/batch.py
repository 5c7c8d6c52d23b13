"""Reading a batch of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..api.inference_request import InferenceRequest, received_request
from ..ipc.client_file import RegionError
from ..ipc.client_memory import Parts
from ..ipc.errors import ErrorCode, FailedError
from ..ipc.execute_frame import described_requests
from ..ipc.frames import COLUMN_PLACES, EXECUTE, EXECUTE_UNIFORM, IN_REGION, UNIFORM
from ..ipc.schemas import Schema, Schemas
from ..ipc.types import Place
from .uniform_batch import NO_ID, read_uniform
from .writer import error_frame

if TYPE_CHECKING:
    from .host import RuntimeHost


# The last number of the head, little-endian: its first byte is all of it.
_COLUMN_AT = UNIFORM.size - 4


class WorkerBatch:
    """The requests that one ``execute`` gets.

    Attributes:
        number: the server's number.
        requests: all of them, as the server numbered them.
        given: the list that the model gets, which it may change.
        result: what the model returned.
        ended: the end of the batch was sent to the server.
        schema: what all the requests have in common; None when they differ.
    """

    __slots__ = ("ended", "given", "number", "requests", "result", "schema")

    def __init__(self, number: int, requests: list[InferenceRequest], schema: Schema | None = None) -> None:
        self.number = number
        self.requests = requests
        self.given = list(requests)
        self.result: Any = None
        self.ended = False
        self.schema = schema

    def forget(self) -> None:
        """Drop the requests and the result, which may refer to them. The model may still have references."""
        self.requests = []
        self.given = []
        self.result = None

    def settle_order(self) -> None:
        """Order the requests as the model ordered the list that it was given: its results are in that order.

        A list with other requests in it is ignored: every request has to get a response.
        """
        given, requests = self.given, self.requests
        if given != requests and len(given) == len(requests) and set(map(id, given)) == set(map(id, requests)):
            self.requests = given
            # Uniform responses carry no numbers: the server takes them in the order of the requests that it sent.
            self.schema = None


def read_batch(host: RuntimeHost, kind: int, number: int, payload: bytearray, schemas: Schemas) -> WorkerBatch | None:
    """The batch that a frame holds, None for any other frame; ``schemas`` is the table that was valid when it came."""
    if kind == EXECUTE_UNIFORM:
        # Tensors in regions are read one request at a time, since each of them can fail for itself.
        if payload[_COLUMN_AT] == COLUMN_PLACES:
            batch = _read_placed(host, number, payload, schemas)
        else:
            batch = WorkerBatch(number, *read_uniform(host, payload, schemas))
    elif kind == EXECUTE:
        batch = _read_any(host, number, payload, schemas)
    else:
        return None
    if host.is_decoupled:
        for item in batch.requests:
            # A sender notices when the model drops the request, so from here on no caller waits for ever.
            item.get_response_sender()
    return batch


def _read_any(host: RuntimeHost, number: int, payload: bytearray, schemas: Schemas) -> WorkerBatch:
    # Two passes: the data part begins behind the last description.
    described, data = described_requests(payload, schemas)
    locate = host.locate
    requests = []
    for request, schema, places, request_id in described:
        if schema.in_regions:
            read = _read_from_regions(host, request, schema, payload, places, data, request_id)
            requests += [] if read is None else [read]
        else:
            requests.append(received_request(host, request, schema, locate(payload, places, data), request_id))
    return WorkerBatch(number, requests)


def _read_placed(host: RuntimeHost, number: int, payload: bytearray, schemas: Schemas) -> WorkerBatch:
    """The requests of an ``EXECUTE_UNIFORM`` frame whose tensors all lie in regions."""
    first, count, schema_number, id_bytes, _ = UNIFORM.unpack_from(payload)
    schema = schemas[schema_number]
    size = schema.places.size
    ids_at = UNIFORM.size + count * size
    ids = payload[ids_at : ids_at + id_bytes].split(b"\0") if id_bytes else [NO_ID] * count
    requests = []
    for row, request_id in enumerate(ids):
        places = schema.places.unpack_from(payload, UNIFORM.size + row * size)
        read = _read_from_regions(host, first + row, schema, payload, places, 0, request_id)
        if read is not None:
            requests.append(read)
    return WorkerBatch(number, requests)


def _read_from_regions(
    host: RuntimeHost,
    number: int,
    schema: Schema,
    payload: bytearray,
    places: tuple[int, ...],
    data: int,
    request_id: bytearray,
) -> InferenceRequest | None:
    """A request with tensors in regions. None if they cannot be read; the caller then has the error already."""
    ends = 4 * len(schema.tensors)
    try:
        located = [_open(host, payload, places[at : at + 4], data) for at in range(0, ends, 4)]
    except RegionError as error:
        # At once: this request alone fails, and the model never sees it.
        host.out.post(error_frame(number, error.caller_error))
        return None
    except (OSError, MemoryError) as problem:
        text = f"shared memory cannot be read: {type(problem).__name__}: {problem}"
        host.out.post(error_frame(number, FailedError(text, ErrorCode.UNAVAILABLE)))
        return None
    parts: Parts = {}
    for name, at in zip(schema.placed, range(ends, len(places), 4)):
        # Regions are numbered from 1 on; 0 is one that the server writes itself.
        if places[at]:
            parts[name] = (places[at], places[at + 2], places[at + 3])
    return received_request(host, number, schema, tuple(located), request_id, parts or None)


def _open(host: RuntimeHost, payload: bytearray, place: tuple[int, ...], data: int) -> Place:
    number, kind, offset, size = place
    if kind != IN_REGION:
        return host.locate(payload, place, data)[0]
    return host.regions.read((number, offset, size)), 0, size
