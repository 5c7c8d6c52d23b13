"""The segments of a batch that is not read: reading its tensors would release them in the end."""

from __future__ import annotations

from .frames import COUNT, IN_REGION, REQUEST
from .schemas import Schemas


def segments_of(payload: bytearray, schemas: Schemas) -> list[int]:
    """The numbers of the server's segments in which inputs of an ``EXECUTE`` frame lie."""
    count, _ = COUNT.unpack_from(payload)
    at = COUNT.size
    found = []
    for _ in range(count):
        _, schema_number, id_bytes, _ = REQUEST.unpack_from(payload, at)
        schema = schemas[schema_number]
        places = schema.places.unpack_from(payload, at + REQUEST.size)
        at += REQUEST.size + schema.places.size + id_bytes
        inputs = zip(places[0 : 4 * len(schema.tensors) : 4], places[1::4])
        found += [segment for segment, kind in inputs if segment and kind != IN_REGION]
    return found
