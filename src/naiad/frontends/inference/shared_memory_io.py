"""Requests with tensors in regions of clients: inputs that are read before the model has the request, outputs that are
written after it.

Large tensors of fixed-size elements are left to the model's thread or process, which reads them where it needs them and
writes its outputs itself. The rest is done here: small tensors at once, others in the offload thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import numpy as np

from naiad.errors import InternalError, NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.inference.client_request import ClientRequest
from naiad.frontends.inference.deferred_inputs import DeferredInputs, read_region, unchecked, unvalidated_strings
from naiad.frontends.inference.offload import run_off_loop
from naiad.request import Array, InferRequest, memory_of, request_label
from naiad.scheduling.admission import RequestBudget
from naiad.shared_memory.region import SPARSE_BYTES, RegionPart
from naiad.shared_memory.registry import LookedUp, RegionRegistry
from naiad.shared_memory.spec import RegionInput
from naiad.shared_memory.tensor_ref import RegionTensor, RegionUse, as_array

AT_ONCE_BYTES: Final = 1 << 16
"""Up to this size tensors are read or written on the event loop itself, which takes some 10 us."""
_AT_ONCE_STRINGS: Final = 64
MAX_UNPLACED: Final = 1024
"""Responses to one request that may wait for the one before them to be written."""

_Request = TypeVar("_Request", bound=ClientRequest)
Deliver = Callable[[_Request, Mapping[str, Array], NaiadError | None], None]
DeliverPart = Callable[[Mapping[str, Array] | None, NaiadError | None, bool], None]
_Part = tuple[Mapping[str, Array] | None, NaiadError | None, bool]


class SharedMemoryIO:
    """The client's shared memory of one request: inputs are read before its model has it, outputs are written before
    it responds.

    Attributes:
        use: the places of the outputs, and the inputs that the model reads itself.
        deferred: the inputs that are not read yet; None when all are there.
    """

    __slots__ = ("deferred", "use")

    def __init__(self, use: RegionUse, deferred: DeferredInputs | None) -> None:
        self.use = use
        self.deferred = deferred

    def submit(self, request: ClientRequest) -> None:
        """Submit ``request`` to its model, after the inputs that the model does not read itself.

        Raises:
            NaiadError: the model refuses it.
        """
        deferred, self.deferred = self.deferred, None
        if deferred is None:
            request.model.submit(request)
        else:
            request.submit_deferred(deferred)

    def respond(
        self, request: _Request, outputs: Mapping[str, Array], error: NaiadError | None, deliver: Deliver[_Request]
    ) -> None:
        """Write the outputs to their places, then ``deliver`` the response of ``request``, now or later."""
        use = self.use
        if error is not None or is_placed(use, outputs):
            deliver(request, outputs, error)
            return

        def done(problem: NaiadError | None) -> None:
            # Classification in a thread makes the request respond once more.
            use.is_placed = True
            deliver(request, outputs, problem)

        place(use, outputs, done, request.model.budget)


class OrderedOutputs:
    """The responses of a decoupled model to one request, delivered in order: while one is written to its place, those
    behind it wait.

    Args:
        use: the places of the outputs.
        budget: bounds what is written in a thread.
    """

    __slots__ = ("_budget", "_is_delivering", "_is_writing", "_use", "_waiting")

    def __init__(self, use: RegionUse, budget: RequestBudget) -> None:
        self._use = use
        self._budget = budget
        self._waiting: deque[_Part] = deque()
        self._is_writing = self._is_delivering = False

    def add(
        self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool, deliver: DeliverPart
    ) -> bool:
        """Deliver a response in its turn; False when too many wait, and then none is delivered any more.

        ``deliver`` takes responses as ``InferRequest.respond_part`` does. It is not an attribute: it leads back to the
        request, and a region is closed only once nothing refers to it, which must not wait for the cycle collector.
        """
        if len(self._waiting) >= MAX_UNPLACED:
            self._waiting.clear()
            return False
        self._waiting.append((outputs, error, final))
        if not self._is_writing:
            self._resume(deliver)
        return True

    def _resume(self, deliver: DeliverPart) -> None:
        # A write that ends at once calls ``_placed`` from within this loop, which continues by itself.
        self._is_delivering = True
        while self._waiting and not self._is_writing:
            outputs, error, final = self._waiting[0]
            if outputs and error is None and not is_placed(self._use, outputs):
                self._is_writing = True
                place(self._use, outputs, partial(self._placed, deliver), self._budget)
            else:
                self._waiting.popleft()
                deliver(outputs, error, final)
        self._is_delivering = False

    def _placed(self, deliver: DeliverPart, problem: NaiadError | None) -> None:
        if not self._waiting:
            # ``add`` has cleared the queue because too many waited: the request is over.
            return
        outputs, _, final = self._waiting.popleft()
        # Before the flag is cleared: a response that this brings about must not start another write.
        deliver(None if problem is not None else outputs, problem, final)
        self._is_writing = False
        if not self._is_delivering:
            self._resume(deliver)


def open_regions(request: InferRequest, registry: RegionRegistry, model: ServingModel) -> SharedMemoryIO:
    """Look up the regions of a request, add the inputs that need no thread, and update ``held_bytes``.

    Raises:
        NaiadError: there is no such region, a part is not inside it, or an input is malformed.
    """
    registry.check_allowed()
    options = request.options.regions
    if options is None:
        raise InternalError(f"{request_label(request.id)}a request without regions was taken for one with regions")
    if (known := registry.recall(options, model.regions_from)) is not None:
        use = RegionUse(known.outputs, known)
        if not request.inputs:
            request.inputs = dict(known.inputs)
            request.held_bytes = max(request.held_bytes, memory_of(request.inputs))
            return SharedMemoryIO(use, None)
        late_too = unvalidated_strings(request, model.spec)
        request.inputs = {**request.inputs, **known.inputs}
        request.held_bytes = max(request.held_bytes, memory_of(request.inputs))
        return SharedMemoryIO(use, late_too)
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
            # A sparse file of a terabyte costs its client nothing; reading its zeros would cost the server all its
            # memory.
            part.region.check_filled(size)
        if part.region.descriptor < 0:
            # Memory of a device: it has no descriptor, and copying it would hold the loop up.
            late.append((given, part))
        elif size >= model.regions_from and not dtype.is_bytes:
            # A placeholder: the model reads the region itself, straight into its batch.
            inputs[name] = unread[name] = as_array(RegionTensor(part, dtype.numpy, shape))
        elif size <= AT_ONCE_BYTES:
            inputs[name] = read_region(given, part, model.spec, request.id)
        else:
            late.append((given, part))
    request.inputs = inputs
    request.held_bytes = max(request.held_bytes, memory_of(inputs))
    use = RegionUse({name: registry.part(ref) for name, ref in options.outputs}, parts)
    # Only a look-up that copied nothing may serve another request, and sparse parts are checked each time.
    if len(unread) == len(options.inputs) and all(array.nbytes <= SPARSE_BYTES for array in unread.values()):
        registry.keep(LookedUp(options, model.regions_from, unread, use.outputs))
    strings = unchecked(inputs)
    return SharedMemoryIO(use, DeferredInputs(late, strings, model.spec, request.id) if late or strings else None)


def place(
    use: RegionUse,
    outputs: Mapping[str, Array],
    done: Callable[[NaiadError | None], None],
    budget: RequestBudget,
) -> None:
    """Write the outputs to their places, then call ``done``: little data at once, more in the offload thread."""
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
    """Whether all outputs are in their places."""
    return use.is_placed or all(not (name in outputs and outputs[name].nbytes) for name in use.outputs)


def _is_quick(use: RegionUse, outputs: Mapping[str, Array]) -> bool:
    size = 0
    for name, part in use.outputs.items():
        array = outputs.get(name)
        if array is None:
            continue
        if part.region.descriptor < 0 and array.nbytes:
            return False
        # The size of strings is unknown until they are looked at, which is quick for a few.
        is_long = array.dtype == np.object_ and array.nbytes > _AT_ONCE_STRINGS * array.dtype.itemsize
        size += AT_ONCE_BYTES + 1 if is_long else array.nbytes
    return size <= AT_ONCE_BYTES
