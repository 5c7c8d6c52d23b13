"""Batches whose tensors all lie in regions, on their way to a process and back."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.reader import ResponseReader
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.request import InferRequest, Outputs, RequestOptions
from naiad.shared_memory.region import RegionPart, RegionRef, SystemRegion
from naiad.shared_memory.spec import RegionOptions
from naiad.shared_memory.tensor_ref import PlacedOutput, RegionTensor, RegionUse, as_array
from naiad.worker.ipc.frames import (
    ALIGNMENT,
    COLUMN_PLACES,
    COUNT,
    EXECUTE,
    EXECUTE_UNIFORM,
    FLAG_ERROR,
    FLAG_FINAL,
    FRAME,
    IN_REGION,
    PLACE,
    REGION,
    REQUEST,
    RESPONSE_HEAD,
    SCHEMA,
    UNIFORM,
)
from support.loaded_models import spec, tensor

PLACES = RegionOptions((), (("y", RegionRef("r", 0, 4)),))
TERMS = RequestOptions(("y",), 1, ("regions", 1), regions=PLACES)
FP32 = np.dtype(np.float32)


@pytest.fixture
def region() -> Iterator[SystemRegion]:
    path = Path(f"/dev/shm/naiad-test-{uuid.uuid4().hex}")
    path.write_bytes(bytes(4096))
    yield SystemRegion("r", path.name, 64, 4032)
    path.unlink()


class RegionRequest(InferRequest):
    """One that uses regions."""

    __slots__ = ("use",)
    use: RegionUse | None


def request(number: int, region: SystemRegion, request_id: str = "") -> RegionRequest:
    """One whose input lies at 4 times its number and whose output is wanted 1024 bytes behind that."""
    given = RegionTensor(RegionPart(region, 4 * number, 4), FP32, (1, 1))
    made = RegionRequest(TERMS, {"x": as_array(given)}, request_id, 0)
    made.use = RegionUse({"y": RegionPart(region, 1024 + 4 * number, 4)})
    return made


class Read(NamedTuple):
    """What an ``EXECUTE_UNIFORM`` frame says of one request."""

    number: int
    form: int
    request_id: str
    places: list[tuple[int, int, int, int]]


def read(frame: bytes) -> list[Read]:
    """An ``EXECUTE_UNIFORM`` frame as ``naiad.worker.ipc.frames`` describes it, with two places a request."""
    kind, size, _ = FRAME.unpack_from(frame)
    assert (kind, size, size % ALIGNMENT) == (EXECUTE_UNIFORM, len(frame) - FRAME.size, 0)
    first, count, form, id_bytes, column = UNIFORM.unpack_from(frame, FRAME.size)
    assert column == COLUMN_PLACES
    at = FRAME.size + UNIFORM.size
    places = [[PLACE.unpack_from(frame, at + (2 * n + i) * PLACE.size) for i in range(2)] for n in range(count)]
    at += 2 * count * PLACE.size
    ids = frame[at : at + id_bytes].decode().split("\0") if id_bytes else [""] * count
    assert len(frame) - at - id_bytes < ALIGNMENT
    return [Read(first + n, form, *one) for n, one in enumerate(zip(ids, places, strict=True))]


def written(writer: BatchWriter, requests: Sequence[RegionRequest], first: int = 8) -> tuple[list[bytes], bytes]:
    """The frames before the batch's, and that."""
    frames: list[OutgoingFrame] = []
    writer.write(7, first, requests, frames)
    for _, descriptor in frames:
        if descriptor >= 0:
            os.close(descriptor)
    *before, (frame, _) = frames
    return [data for data, _ in before], frame


@pytest.mark.parametrize("ids", [[""], ["one"], ["", "zwölf", ""], ["a", "b"]])
def test_a_batch_is_written_as_the_protocol_says(region: SystemRegion, ids: list[str]) -> None:
    writer = BatchWriter(spec())
    requests = [request(n, region, request_id) for n, request_id in enumerate(ids)]
    before, frame = written(writer, requests)
    assert [FRAME.unpack_from(data)[0] for data in before] == [SCHEMA, REGION]
    assert orjson.loads(before[0][FRAME.size :])["placed"] == ["y"]
    # The region begins at 64 in its file.
    expected = [
        Read(8 + n, 1, request_id, [(1, IN_REGION, 64 + 4 * n, 4), (1, IN_REGION, 1088 + 4 * n, 4)])
        for n, request_id in enumerate(ids)
    ]
    assert read(frame) == expected
    assert written(writer, requests) == ([], frame)


def test_requests_of_which_one_has_its_input_here_go_together(region: SystemRegion) -> None:
    writer = BatchWriter(spec())
    written(writer, [request(0, region)])
    here = request(1, region)
    here.inputs = {"x": np.full((1, 1), 3, np.float32)}
    before, frame = written(writer, [request(0, region), here])
    assert not before
    assert FRAME.unpack_from(frame)[0] == EXECUTE
    count, _ = COUNT.unpack_from(frame, FRAME.size)
    assert count == 2
    assert frame.endswith(np.float32(3).tobytes() + bytes(60))


def test_what_a_shadow_watches_is_not_placed_by_the_process(region: SystemRegion) -> None:
    for watched_first in (True, False):
        writer = BatchWriter(spec())
        watched = request(1, region)
        watched.use = None
        if not watched_first:
            written(writer, [request(0, region)])
        before, frame = written(writer, [watched])
        assert "placed" not in orjson.loads(before[0][FRAME.size :])
        assert REQUEST.unpack_from(frame, FRAME.size + COUNT.size)[0] == 8
        # One that nobody watches still is.
        found = read(written(writer, [request(0, region)])[1])
        assert found[0].places[1] == (1, IN_REGION, 1088, 4)


def test_another_region_of_the_same_name_is_introduced(region: SystemRegion) -> None:
    writer = BatchWriter(spec())
    written(writer, [request(0, region)])
    other = SystemRegion("r", region.key, 0, 4096)
    before, frame = written(writer, [request(0, other)])
    assert [FRAME.unpack_from(data)[0] for data in before] == [REGION]
    assert read(frame)[0].places == [(2, IN_REGION, 0, 4), (2, IN_REGION, 1024, 4)]


# Responses


def response(number: int, form: int = 1, flags: int = FLAG_FINAL, size: int = 4) -> bytearray:
    head = RESPONSE_HEAD.pack(number, form, flags, 0, 0)
    return bytearray(COUNT.pack(1, 0) + head + PLACE.pack(1, IN_REGION, 1088, size))


def reader(shape: list[int]) -> ResponseReader:
    def opened(number: int, offset: int, size: int) -> np.ndarray[Any, Any]:
        return np.zeros(size, np.uint8)

    made = ResponseReader(spec(outputs=(tensor("y"),)), opened, opened)
    made.learn(1, orjson.dumps({"outputs": [["y", "FP32", shape]], "parameters": {}}))
    return made


def test_responses_that_differ_in_their_number_alone(region: SystemRegion) -> None:
    made = reader([1, 1])
    seen = []
    for number in (3, 2**40, 3):
        (found,) = made.read(response(number), 5)
        assert (found.request, found.error, found.flags, found.output_ns) == (number, None, FLAG_FINAL, 5)
        assert type(found.outputs) is dict
        assert isinstance(found.outputs["y"], PlacedOutput)
        assert found.outputs["y"].shape == (1, 1)
        seen.append(found.outputs)
    # Whoever gets them may change them.
    seen[0].clear()
    assert list(seen[1]) == list(seen[2]) == ["y"]


def test_a_form_that_is_void_counts_no_more() -> None:
    made = reader([1, 1])
    made.read(response(1))
    made.forget()
    made.learn(1, orjson.dumps({"outputs": [["y", "FP32", [2, 2]]], "parameters": {}}))
    (found,) = made.read(response(1))
    assert found.outputs is not None
    assert found.outputs["y"].shape == (2, 2)


def test_what_is_no_plain_response_is_read_every_time() -> None:
    made = reader([1, 1])
    text = orjson.dumps({"message": "no", "code": 13})
    head = RESPONSE_HEAD.pack(4, 0, FLAG_FINAL | FLAG_ERROR, len(text), 0)
    for _ in range(2):
        (found,) = made.read(bytearray(COUNT.pack(1, 0) + head + text))
        assert (found.request, str(found.error)) == (4, "no")
    made.learn(2, orjson.dumps({"outputs": [["y", "FP32", [1, 1]]], "parameters": {"p": 1}}))
    for _ in range(2):
        (found,) = made.read(response(4, form=2))
        assert isinstance(found.outputs, Outputs)
        assert found.outputs.parameters == {"p": 1}
