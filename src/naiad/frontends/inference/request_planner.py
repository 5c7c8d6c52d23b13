"""From the description of an inference request to a plan: the checks against the model, the same for every protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from naiad.bounded_dict import BoundedDict
from naiad.config.spec import ModelSpec
from naiad.engine.request_validation import check_request, check_size
from naiad.errors import InvalidArgumentError
from naiad.execution.model.interface import ServingModel
from naiad.request import Array, RequestOptions, request_label
from naiad.shared_memory.registry import LONGEST_NAME
from naiad.shared_memory.spec import RegionInput, RegionOptions
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.packed_bytes import AT_ONCE_STRINGS, PACKED_BYTES, PACKED_STRINGS, PackedStrings, as_strings
from naiad.wire.v2.classification import Classes, check_classifiable
from naiad.wire.v2.header import InferHeader, InputHeader
from naiad.wire.v2.plan import MAX_PLANS, BinaryInput, InferPlan, OutputFormats

AT_ONCE: Final = 1 << 12
"""The classes that are found on the event loop, which takes some 2 ms; more are found in a thread."""

AT_ONCE_DECOUPLED: Final = 1 << 16
"""The same for responses of decoupled models, which must not overtake each other in a thread; more are refused."""

_Plan = TypeVar("_Plan", bound=InferPlan[Any])


class Planner(Generic[_Plan]):
    """Makes plans of the class ``kind`` for one loaded model, the attribute ``model``.

    Requests that carry their data in the description never have the same bytes twice, but mostly the same schema: a
    plan is cached by schema.
    """

    def __init__(self, model: ServingModel, kind: type[_Plan]) -> None:
        self.model = model
        self._kind = kind
        # Belongs to one loaded model: another one may have other inputs.
        self._plans: dict[object, _Plan] = BoundedDict(MAX_PLANS)

    def plan(self, header: InferHeader, offsets: Mapping[str, int]) -> _Plan:
        """The plan for a request, a cached one if there is one; arguments and errors as ``make``."""
        key = header.plan_key()
        plan = self._plans.get(key)
        if plan is None:
            plan = self._of_another_sequence(header) or self.make(header, offsets)
            self._keep(key, plan, header)
        return plan

    def _of_another_sequence(self, header: InferHeader) -> _Plan | None:
        """The plan for a request that differs from an earlier one in its sequence alone; None if there is none."""
        if not header.sequence_id:
            return None
        # Each sequence has another id, so without this the first requests of every sequence are validated in full.
        found = self._plans.get(header.plan_key(of_any_sequence=True))
        return None if found is None else found.in_sequence(header.sequence_id)

    def _keep(self, key: object, plan: _Plan, header: InferHeader) -> None:
        # The key must be bounded: the inputs are the model's, but an output may be named any number of times.
        if key is None or len(header.outputs or ()) > len(plan.outputs) or _has_long_names(plan.regions):
            return
        self._plans[key] = plan
        if header.sequence_id:
            self._plans[header.plan_key(of_any_sequence=True)] = plan

    def make(self, header: InferHeader, offsets: Mapping[str, int]) -> _Plan:
        """Check a request against its model and make the plan, which serves later ones with the same description.

        Args:
            header: the description.
            offsets: for each binary input its offset in bytes behind the description.

        Raises:
            InvalidArgumentError: the request does not fit the model.
        """
        spec = self.model.spec
        wanted = header.outputs or []
        fit, names = check_request(spec, header.inputs, [o.name for o in wanted], header.id)
        requested = {o.name: o.binary for o in wanted}
        inputs: list[BinaryInput] = []
        size = 0
        # As in ``check_request``: the reference checks the inputs in the reverse order, and reports the first error.
        for given in header.inputs[::-1]:
            if given.binary_size is not None and not given.dtype.is_bytes:
                check_size(spec, given.name, given.elements * given.dtype.itemsize, given.binary_size, header.id)
        for given in header.inputs:
            if given.binary_size is None:
                continue
            size += given.binary_size
            if not given.dtype.is_bytes:
                inputs.append(BinaryInput(given.name, given.dtype.numpy, offsets[given.name], given.shape))
        regions = _regions(spec, header)
        plan = self._kind(
            spec.name,
            self.model.version,
            RequestOptions(
                names,
                fit.rows,
                # Requests with regions and requests without never run in one batch.
                fit.shape_key if regions is None else ("regions", fit.shape_key),
                header.parameters,
                header.priority,
                header.timeout_us,
                header.flags,
                header.sequence_id,
                regions,
            ),
            OutputFormats(
                {n: spec.outputs[n].dtype for n in names},
                {n: requested.get(n, header.binary_default) if requested else header.binary_default for n in names},
                _classes(spec, {o.name: o.classification for o in wanted if o.classification}),
                _base64_outputs(header, names),
            ),
            inputs,
            size,
            header.empty_final,
        )
        # BYTES may be too many to validate on the loop, so their requests leave the fast path.
        plan.is_special = plan.is_special or any(given.dtype.is_bytes for given in header.inputs)
        return plan


def _regions(spec: ModelSpec, header: InferHeader) -> RegionOptions | None:
    """The regions that a request names; None if it names none."""
    inputs = []
    for given in header.inputs:
        if given.region is None:
            continue
        if not given.dtype.is_bytes:
            size = given.elements * given.dtype.itemsize
            check_size(spec, given.name, size, given.region.byte_size, header.id)
        inputs.append(RegionInput(given.name, given.dtype, given.shape, given.elements, given.region))
    outputs = {o.name: o.region for o in header.outputs or () if o.region is not None}
    return RegionOptions(tuple(inputs), tuple(outputs.items())) if inputs or outputs else None


def _base64_outputs(header: InferHeader, names: tuple[str, ...]) -> frozenset[str]:
    """The outputs, of those with these ``names``, that the caller wants as base64 text."""
    if header.outputs is None:
        return frozenset(names) if header.base64_default else frozenset()
    return frozenset(output.name for output in header.outputs if output.base64)


def _has_long_names(regions: RegionOptions | None) -> bool:
    if regions is None:
        return False
    # A name may be as long as a request; cached plans keep names.
    named = [i.ref for i in regions.inputs] + [ref for _, ref in regions.outputs]
    return any(len(ref.region) > LONGEST_NAME for ref in named)


def _classes(spec: ModelSpec, counts: Mapping[str, int]) -> Classes | None:
    if not counts:
        return None
    for name in counts:
        check_classifiable(spec.outputs[name].dtype)
    labels = {name: spec.outputs[name].labels for name in counts}
    at_once = AT_ONCE_DECOUPLED if spec.decoupled else AT_ONCE
    return Classes(counts, labels, spec.max_batch_size > 0, at_once)


def read_bytes(given: InputHeader | RegionInput, spec: ModelSpec, raw: bytes | memoryview, request_id: str) -> Array:
    """A BYTES input from its serialised form. A large tensor stays packed; many strings are validated by the submitter.

    Raises:
        InvalidArgumentError: a length runs past the end, or the number of elements does not match the shape.
    """
    place = f"inference input '{given.name}' for model '{spec.name}'"
    try:
        if given.elements < PACKED_STRINGS and len(raw) < PACKED_BYTES:
            return decode_bytes(raw, given.elements, place).reshape(given.shape)
        # As objects, ten million strings held the loop up for 20 s: a large tensor keeps its serialised form.
        packed = PackedStrings(raw, given.shape, place, is_checked=False)
        if given.elements <= AT_ONCE_STRINGS:
            packed.check()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(request_label(request_id) + str(error)) from None
    return as_strings(packed)
