"""Requests whose tensors lie in regions of clients: what is read before they reach their model, and what is written
behind it.

Large tensors of fixed-size elements are left to the model's thread or process, which reads them where it needs them and
writes its outputs itself. The rest is done here: small tensors at once, others in the loop's thread for what is long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from naiad.errors import InternalError, NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.inference.deferred_inputs import DeferredInputs, late_strings, read_region, unchecked
from naiad.frontends.inference.offload import run_off_loop
from naiad.request import Array, InferRequest, request_label
from naiad.scheduling.admission import RequestBudget
from naiad.shared_memory.region import SPARSE_BYTES, RegionPart
from naiad.shared_memory.registry import LookedUp, RegionRegistry
from naiad.shared_memory.spec import RegionInput
from naiad.shared_memory.tensor_ref import RegionTensor, RegionUse, as_array

AT_ONCE_BYTES: Final = 1 << 16
"""So much is read or written on the event loop itself, which takes some 10 us."""
_AT_ONCE_STRINGS: Final = 64


class Opened(NamedTuple):
    """A request's regions: where its outputs go, and which inputs are still to be read, if any."""

    use: RegionUse
    late: DeferredInputs | None


def open_regions(request: InferRequest, registry: RegionRegistry, model: ServingModel) -> Opened:
    """Look the regions of a request up, and add to its inputs those that need no thread.

    Raises:
        NaiadError: there is no such region, or a part is not inside it, or what was read is not right.
    """
    registry.check_allowed()
    options = request.options.regions
    if options is None:
        raise InternalError(f"{request_label(request.id)}a request without regions was taken for one with regions")
    if (known := registry.recall(options, model.regions_from)) is not None:
        use = RegionUse(known.outputs, known)
        if not request.inputs:
            request.inputs = dict(known.inputs)
            return Opened(use, None)
        late_too = late_strings(request, model.spec)
        request.inputs = {**request.inputs, **known.inputs}
        return Opened(use, late_too)
    inputs = dict(request.inputs)
    late: list[tuple[RegionInput, RegionPart]] = []
    unread: dict[str, Array] = {}
    parts: list[RegionPart] = []
    for given in options.inputs:
        name, dtype, shape, _, ref = given
        part = registry.part(ref)
        parts.append(part)
        size = part.byte_size
        if size > SPARSE_BYTES:
            part.region.check_filled(size)
        if part.region.descriptor < 0:
            late.append((given, part))
        elif size >= model.regions_from and not dtype.is_bytes:
            inputs[name] = unread[name] = as_array(RegionTensor(part, dtype.numpy, shape))
        elif size <= AT_ONCE_BYTES:
            inputs[name] = read_region(given, part, model.spec, request.id)
        else:
            late.append((given, part))
    request.inputs = inputs
    use = RegionUse({name: registry.part(ref) for name, ref in options.outputs}, parts)
    if len(unread) == len(options.inputs) and all(array.nbytes <= SPARSE_BYTES for array in unread.values()):
        registry.keep(LookedUp(options, model.regions_from, unread, use.outputs))
    strings = unchecked(inputs)
    return Opened(use, DeferredInputs(late, strings, model.spec, request.id) if late or strings else None)


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
