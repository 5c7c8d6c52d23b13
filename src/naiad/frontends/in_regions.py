"""Requests whose tensors lie in regions of clients: what is read before they reach their model, and what is written
behind it.

Large tensors of fixed-size elements are left to the model's thread or process, which reads them where it needs them and
writes its outputs itself. The rest is done here: small tensors at once, others in the loop's thread for what is long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, InternalError, NaiadError
from naiad.execution.serving import ServingModel
from naiad.frontends.off_loop import run_off_loop
from naiad.frontends.planning import read_bytes
from naiad.regions.region import SPARSE_BYTES, Region, RegionPart
from naiad.regions.registry import LookedUp, RegionRegistry
from naiad.regions.tensor import RegionTensor, RegionUse, as_array
from naiad.regions.terms import RegionInput
from naiad.request import Array, InferRequest, memory_of, request_label
from naiad.scheduling.budget import RequestBudget

AT_ONCE_BYTES: Final = 1 << 16
"""So much is read or written on the event loop itself, which takes some 10 us."""
_AT_ONCE_STRINGS: Final = 64


class Late(NamedTuple):
    """Inputs of one request that are to be read in a thread before it reaches its model."""

    parts: list[tuple[RegionInput, RegionPart]]
    spec: ModelSpec
    request_id: str

    def read(self) -> dict[str, Array]:
        """All of them.

        Raises:
            NaiadError: one cannot be read, or is no tensor of its datatype.
        """
        return {given.name: _read(given, part, self.spec, self.request_id) for given, part in self.parts}


class Opened(NamedTuple):
    """A request's regions: where its outputs go, and which inputs are still to be read, if any."""

    use: RegionUse
    late: Late | None


def open_regions(request: InferRequest, registry: RegionRegistry, model: ServingModel) -> Opened:
    """Look the regions of a request up, and add to its inputs those that need no thread.

    Raises:
        NaiadError: there is no such region, or a part is not inside it, or what was read is not right.
    """
    registry.check_allowed()
    terms = request.terms.regions
    if terms is None:
        raise InternalError(f"{request_label(request.id)}a request without regions was taken for one with regions")
    if (known := registry.recall(terms, model.regions_from)) is not None:
        request.inputs = {**request.inputs, **known.inputs} if request.inputs else dict(known.inputs)
        return Opened(RegionUse(known.outputs), None)
    inputs = dict(request.inputs)
    late: list[tuple[RegionInput, RegionPart]] = []
    unread: dict[str, Array] = {}
    for given in terms.inputs:
        name, dtype, shape, _, ref = given
        part = registry.part(ref)
        size = part.byte_size
        if size > SPARSE_BYTES:
            part.region.check_filled(size)
        if part.region.descriptor < 0:
            late.append((given, part))
        elif size >= model.regions_from and not dtype.is_bytes:
            inputs[name] = unread[name] = as_array(RegionTensor(part, dtype.numpy, shape))
        elif size <= AT_ONCE_BYTES:
            inputs[name] = _read(given, part, model.spec, request.id)
        else:
            late.append((given, part))
    request.inputs = inputs
    use = RegionUse({name: registry.part(ref) for name, ref in terms.outputs})
    if len(unread) == len(terms.inputs) and all(array.nbytes <= SPARSE_BYTES for array in unread.values()):
        registry.keep(LookedUp(terms, model.regions_from, unread, use.outputs))
    return Opened(use, Late(late, model.spec, request.id) if late else None)


def submit_when_read(request: InferRequest, model: ServingModel, late: Late, is_wanted: Callable[[], bool]) -> None:
    """Read what is late and hand the request to its model; errors go to its ``respond``. The model is not closed
    meanwhile. A request that is not wanted by then is answered all the same, for whoever counts it.

    Raises:
        QueueFullError: there is no room for what is to be read.
    """

    def submit(found: dict[str, Array]) -> None:
        _add(request, found)
        if not is_wanted():
            fail(CancelledError(f"{request_label(request.id)}the request was cancelled by its caller"))
            return
        try:
            model.submit_expected(request)
        except NaiadError as error:
            request.respond({}, error)

    def fail(error: NaiadError) -> None:
        try:
            request.respond({}, error)
        finally:
            model.expect_no_more()

    size = sum(part.byte_size for _, part in late.parts)
    model.check_room(size)
    if request.terms.correlation_id and all(part.region.descriptor >= 0 for _, part in late.parts):
        # The next request of its sequence must not overtake it.
        _add(request, late.read())
        model.submit(request)
    else:
        model.expect()
        run_off_loop(late.read, submit, fail, model.budget, size)


def _add(request: InferRequest, found: Mapping[str, Array]) -> None:
    """Add inputs that were read. Requests with the same terms have their inputs in one order, whatever was late."""
    inputs = {**request.inputs, **found}
    for given in request.terms.regions.inputs if request.terms.regions is not None else ():
        inputs[given.name] = inputs.pop(given.name)
    request.inputs = inputs
    request.held_bytes = memory_of(inputs)


def place(
    use: RegionUse,
    outputs: Mapping[str, Array],
    done: Callable[[NaiadError | None], None],
    budget: RequestBudget,
) -> None:
    """Write those outputs that are not yet where they are wanted; then ``done`` is told, now or later."""
    if _is_quick(use, outputs):
        try:
            use.place(outputs)
        except NaiadError as error:
            done(error)
        else:
            done(None)
        return
    run_off_loop(lambda: use.place(outputs), done, done, budget, use.size(outputs))


def is_placed(use: RegionUse, outputs: Mapping[str, Array]) -> bool:
    """Whether nothing is left to be written."""
    return use.is_placed or all(not (name in outputs and outputs[name].nbytes) for name in use.outputs)


def _is_quick(use: RegionUse, outputs: Mapping[str, Array]) -> bool:
    size = 0
    for name, part in use.outputs.items():
        array = outputs.get(name)
        if array is None:
            continue
        if part.region.descriptor < 0 and array.nbytes:
            return False
        # The size of strings is not known; few are not long to look at.
        is_long = array.dtype == np.object_ and array.nbytes > _AT_ONCE_STRINGS * array.dtype.itemsize
        size += AT_ONCE_BYTES + 1 if is_long else array.nbytes
    return size <= AT_ONCE_BYTES


def _read(given: RegionInput, part: RegionPart, spec: ModelSpec, request_id: str) -> Array:
    if not given.dtype.is_bytes:
        return RegionTensor(part, given.dtype.numpy, given.shape).read()
    raw: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(part.byte_size, np.uint8)
    region: Region = part.region
    region.read_into(raw.data, part.offset)
    return read_bytes(given, spec, raw.data, request_id)
