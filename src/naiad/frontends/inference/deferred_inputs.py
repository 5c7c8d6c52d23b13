"""Inputs that are read or validated in a thread before their request reaches its model: tensors in regions of clients
and tensors of very many strings. The loop serves other requests meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, InvalidArgumentError, NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.inference.offload import run_off_loop
from naiad.frontends.inference.request_planner import read_bytes
from naiad.request import Array, InferRequest, memory_of, request_label
from naiad.shared_memory.region import Region, RegionPart
from naiad.shared_memory.spec import RegionInput
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.tensor.packed_bytes import PackedStrings, as_strings, is_packed

QUICK_BYTES: Final = 1 << 20
"""Up to this size inputs are copied on the event loop to keep the order of a sequence, which takes some 200 us."""


class DeferredInputs(NamedTuple):
    """The inputs of one request that a thread reads or validates before the request reaches its model."""

    parts: Sequence[tuple[RegionInput, RegionPart]]
    strings: Mapping[str, PackedStrings]
    spec: ModelSpec
    request_id: str

    @property
    def size(self) -> int:
        """The bytes to read or to validate."""
        return sum(part.byte_size for _, part in self.parts) + sum(packed.nbytes for packed in self.strings.values())

    @property
    def is_quick(self) -> bool:
        """Whether the event loop may read it if need be: up to ``QUICK_BYTES``, no memory of devices, no strings."""
        is_memory = all(part.region.descriptor >= 0 and not given.dtype.is_bytes for given, part in self.parts)
        return is_memory and not self.strings and self.size <= QUICK_BYTES

    def read(self) -> dict[str, Array]:
        """Read and validate all of them.

        Raises:
            NaiadError: one cannot be read, or is no tensor of its datatype.
        """
        found = {given.name: read_region(given, part, self.spec, self.request_id) for given, part in self.parts}
        for name, packed in self.strings.items():
            found[name] = _checked(packed, self.request_id)
        return found


def unvalidated_strings(request: InferRequest, spec: ModelSpec) -> DeferredInputs | None:
    """The inputs of a request that are not validated yet; None if there are none."""
    found = unchecked(request.inputs)
    return DeferredInputs((), found, spec, request.id) if found else None


def unchecked(inputs: Mapping[str, Array]) -> dict[str, PackedStrings]:
    """The BYTES tensors that are too long to be validated on the event loop."""
    return {n: a for n, a in inputs.items() if is_packed(a) and not a.is_checked}


def submit_when_read(
    request: InferRequest,
    model: ServingModel,
    late: DeferredInputs,
    is_wanted: Callable[[], bool],
    then: Callable[[], object] = lambda: None,
) -> None:
    """Read the deferred inputs and submit the request to its model; errors go to its ``respond``. The model is not
    closed meanwhile. An unwanted request still gets a response, because its exchange or call is counted until then.

    ``then`` is called once the model has the request, or will not get it; maybe before this returns, but not if this
    raises.

    Raises:
        QueueFullError: there is no room for the inputs.
    """

    def submit(found: dict[str, Array]) -> None:
        try:
            # ``then`` may release requests of the same sequence, so it runs whatever happens here.
            hand_over(found)
        finally:
            then()

    def hand_over(found: dict[str, Array]) -> None:
        _add(request, found)
        # The time of the reading must not count as time in the queue.
        request.queued_ns = monotonic_ns()
        if not is_wanted():
            refuse(CancelledError(f"{request_label(request.id)}the request was cancelled by its caller"))
            return
        try:
            # This releases the reserved place itself, also when it raises.
            model.submit_reserved(request)
        except NaiadError as error:
            request.respond({}, error)

    def fail(error: NaiadError) -> None:
        try:
            refuse(error)
        finally:
            then()

    def refuse(error: NaiadError) -> None:
        try:
            request.respond({}, error)
        finally:
            model.release()

    size = late.size
    # Before the reading: a request without room must not cost a thread's time.
    model.check_room(size)
    if request.options.correlation_id and late.is_quick:
        # The next request of its sequence must not overtake it. On a stream it does not overtake longer inputs either.
        _add(request, late.read())
        model.submit(request)
        then()
    else:
        # Reserves a place: a model that is unloaded meanwhile stays open until this request has ended.
        model.reserve()
        run_off_loop(late.read, submit, fail, model.budget, size)


def _add(request: InferRequest, found: Mapping[str, Array]) -> None:
    """Add inputs that were read. Requests with the same options have their inputs in one order, whatever came late."""
    inputs = {**request.inputs, **found}
    for given in request.options.regions.inputs if request.options.regions is not None else ():
        # Moves it to the end: workers get the inputs of a batch by position, described once.
        inputs[given.name] = inputs.pop(given.name)
    request.inputs = inputs
    request.held_bytes = max(request.held_bytes, memory_of(inputs))


def read_region(given: RegionInput, part: RegionPart, spec: ModelSpec, request_id: str) -> Array:
    """An input that lies in a region.

    Raises:
        NaiadError: it cannot be read, or is no tensor of its datatype.
    """
    if not given.dtype.is_bytes:
        return RegionTensor(part, given.dtype.numpy, given.shape).read()
    raw: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(part.byte_size, np.uint8)
    region: Region = part.region
    region.read_into(raw.data, part.offset)
    array = read_bytes(given, spec, raw.data, request_id)
    return _checked(array, request_id) if is_packed(array) else array


def _checked(packed: PackedStrings, request_id: str) -> Array:
    try:
        packed.check()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(request_label(request_id) + str(error)) from None
    return as_strings(packed)
