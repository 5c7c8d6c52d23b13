"""The descriptions of the requests in an ``EXECUTE`` frame: everything in it but the tensors."""

from __future__ import annotations

from typing import Tuple

from .frame_body import aligned
from .frames import COUNT, IN_REGION, REQUEST
from .schemas import Schema, Schemas

DescribedRequest = Tuple[int, Schema, Tuple[int, ...], bytearray]
"""Its number, its schema, the places of its tensors, four numbers each, and its id."""


def described_requests(payload: bytearray, schemas: Schemas) -> tuple[list[DescribedRequest], int]:
    """The requests of a frame, and where the data part begins in its payload."""
    count, _ = COUNT.unpack_from(payload)
    at = COUNT.size
    found = []
    for _ in range(count):
        request, schema_number, id_bytes, _ = REQUEST.unpack_from(payload, at)
        schema = schemas[schema_number]
        at += REQUEST.size
        places = schema.places.unpack_from(payload, at)
        at += schema.places.size
        found.append((request, schema, places, payload[at : at + id_bytes]))
        at += id_bytes
    return found, aligned(at)


def segments_of(payload: bytearray, schemas: Schemas) -> list[int]:
    """The numbers of the server's segments in which inputs of a frame lie."""
    found: list[int] = []
    for _, schema, places, _ in described_requests(payload, schemas)[0]:
        inputs = zip(places[0 : 4 * len(schema.tensors) : 4], places[1::4])
        found += [segment for segment, kind in inputs if segment and kind != IN_REGION]
    return found
