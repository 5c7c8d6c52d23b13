"""Requests alike whose tensors all lie in regions, as ``EXECUTE`` frames: only their numbers, ids and places differ."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from naiad.config.spec import ModelSpec
from naiad.execution.worker.codec.client_memory import Piece, WorkerRegions
from naiad.request import InferRequest
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.worker.ipc.frames import ALIGNMENT, COUNT, EXECUTE, FRAME, PLACE, REQUEST
from naiad.worker.ipc.schemas import PADDING


class UniformShmSchema:
    """A form whose requests can travel like this.

    Args:
        number: of the form.
        regions: those that the child has been given.
        inputs, outputs: how many there are of each.
    """

    __slots__ = ("_number", "_numbers", "_one", "_regions", "_request")

    def __init__(self, number: int, regions: WorkerRegions, inputs: int, outputs: int) -> None:
        self._number = number
        self._regions = regions
        self._numbers = 4 * (inputs + outputs)
        request = REQUEST.format[1:] + PLACE.format[1:] * (inputs + outputs)
        self._request = struct.Struct("<" + request)
        # Most batches have one request, without an id.
        gap = -(COUNT.size + self._request.size) % ALIGNMENT
        self._one = struct.Struct(f"{FRAME.format}{COUNT.format[1:]}{request}{gap}x")

    def frame(self, batch: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]) -> bytes | None:
        """The frame of a batch whose requests are numbered from ``first`` on; regions that are new to the child are
        added to ``pieces``. None when a tensor of one lies elsewhere.

        Raises:
            OSError: too many files are open.
        """
        found = [self._places(request, pieces) for request in requests]
        if None in found:
            return None
        if len(requests) == 1 and not requests[0].id and (places := found[0]) is not None:
            size = self._one.size - FRAME.size
            return self._one.pack(EXECUTE, size, batch, 1, 0, first, self._number, 0, 0, *places)
        parts = [COUNT.pack(len(requests), 0)]
        for number, (request, places) in enumerate(zip(requests, found, strict=True), first):
            request_id = request.id.encode()
            parts += (self._request.pack(number, self._number, len(request_id), 0, *(places or ())), request_id)
        body = b"".join(parts)
        gap = PADDING[-len(body) % ALIGNMENT]
        return b"".join((FRAME.pack(EXECUTE, len(body) + len(gap), batch), body, gap))

    def _places(self, request: InferRequest, pieces: list[Piece]) -> list[int] | None:
        """All places of a request in one list."""
        use = request.use
        if use is None:
            return None
        places: list[int] = []
        for tensor in request.inputs.values():
            if not isinstance(tensor, RegionTensor):
                return None
            places += self._regions.find(tensor.part, pieces)
        for part in use.outputs.values():
            places += self._regions.find(part, pieces)
        return places if len(places) == self._numbers else None


def placed_form(number: int, spec: ModelSpec, regions: WorkerRegions, request: InferRequest) -> UniformShmSchema | None:
    """The form of that number, which is the request's; None when its requests cannot travel like this."""
    if request.options.regions is None or request.use is None or spec.is_cached:
        return None
    return UniformShmSchema(number, regions, len(request.inputs), len(request.use.outputs))
