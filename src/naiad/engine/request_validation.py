"""Validation of requests against their model: the checks and texts of the protocol, in the reference's order.

They run once for every distinct request header: the front ends cache the result by the header's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import InvalidArgumentError
from naiad.request import request_label
from naiad.tensor.dtypes import DataType

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


class NamedShape(Protocol):
    """The description of one input in a request, whatever the protocol."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DataType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class Fit(NamedTuple):
    """The result for a valid request: its batch ``rows`` (1 without a batch dimension) and its ``shape_key``."""

    rows: int
    shape_key: tuple[tuple[str, tuple[int, ...]], ...]


def check_request(
    spec: ModelSpec, inputs: Sequence[NamedShape], outputs: Sequence[str], request_id: str
) -> tuple[Fit, tuple[str, ...]]:
    """Check a whole request; returns the results of ``check_inputs`` and ``check_outputs``.

    Raises:
        InvalidArgumentError: as these two, or an output is requested twice. Repeated inputs are checked first, then
            outputs, then inputs.
    """
    check_repeats("input", [i.name for i in inputs], request_id)
    check_repeats("output", outputs, request_id)
    # This order decides which of several mistakes the error names, as in the reference.
    names = check_outputs(spec, outputs)
    return check_inputs(spec, inputs, request_id), names


def check_inputs(spec: ModelSpec, inputs: Sequence[NamedShape], request_id: str) -> Fit:
    """Check names, batch size, datatypes and shapes of a request's inputs.

    Raises:
        InvalidArgumentError: the first mismatch, with what was expected and found.
    """
    label = request_label(request_id)
    _check_names(spec, inputs, request_id)
    # The reference checks the inputs in reverse order, which decides the input that its text names.
    backwards = inputs[::-1]
    rows = _check_batch(spec, backwards, label) if spec.max_batch_size else 1
    for given in backwards:
        _check_tensor(spec, spec.inputs[given.name], given, label)
    lead = 1 if spec.max_batch_size else 0
    # Sorted, so that requests with the same inputs in another order share batches.
    return Fit(rows, tuple(sorted((given.name, _key(spec, given.name, given.shape[lead:], label)) for given in inputs)))


def check_outputs(spec: ModelSpec, names: Sequence[str]) -> tuple[str, ...]:
    """The requested outputs without repeats, in the model's order; all of the model's outputs when none is named.

    Raises:
        InvalidArgumentError: the model has no output of that name.
    """
    for name in names:
        if name not in spec.outputs:
            raise InvalidArgumentError(f"unexpected inference output '{name}' for model '{spec.name}'")
    wanted = frozenset(names)
    # Outputs of an ensemble are sorted by name, as in the reference.
    ordered = spec.outputs if spec.ensemble is None else sorted(spec.outputs)
    return tuple(name for name in ordered if not wanted or name in wanted)


def check_size(spec: ModelSpec, name: str, expected: int, found: int, request_id: str) -> None:
    """Check the bytes of a tensor of fixed-size elements.

    Raises:
        InvalidArgumentError: the sizes differ.
    """
    if expected != found:
        raise InvalidArgumentError(
            f"{request_label(request_id)}input byte size mismatch for input '{name}' for model '{spec.name}'. "
            f"Expected {expected}, got {found}"
        )


def _check_names(spec: ModelSpec, inputs: Sequence[NamedShape], request_id: str) -> None:
    given = [i.name for i in inputs]
    check_repeats("input", given, request_id)
    label = request_label(request_id)
    required = [t.name for t in spec.inputs.values() if not t.optional]
    # The number comes before the names, as in the reference.
    if not len(required) <= len(given) <= len(spec.inputs):
        raise InvalidArgumentError(label + _count_text(spec, given, required))
    # Backwards, as in ``check_inputs``.
    for name in given[::-1]:
        if name not in spec.inputs:
            raise InvalidArgumentError(f"unexpected inference input '{name}' for model '{spec.name}'")
    if missing := [n for n in required if n not in given]:
        raise InvalidArgumentError(
            f"{label}missing required input(s) {_names(missing)} for model '{spec.name}'. Got input(s) "
            f"{_names(given[::-1])}. Please provide all required input(s)."
        )


def check_repeats(kind: str, names: Sequence[str], request_id: str) -> None:
    """Check that no input or output is named twice; ``kind`` says which of them ``names`` are.

    Raises:
        InvalidArgumentError: one is.
    """
    if len(set(names)) < len(names):
        # The first name that repeats an earlier one, as in the reference. A set, for a request may have thousands.
        seen: set[str] = set()
        for repeated in names:
            if repeated in seen:
                break
            seen.add(repeated)
        raise InvalidArgumentError(f"{request_label(request_id)}{kind} '{repeated}' already exists in request")


def _count_text(spec: ModelSpec, given: list[str], required: list[str]) -> str:
    missing = [n for n in required if n not in given]
    if len(required) == len(spec.inputs):
        expected = f"expected {len(required)} inputs but got {len(given)} inputs"
    else:
        expected = (
            f"expected number of inputs between {len(required)} and {len(spec.inputs)} but got {len(given)} inputs"
        )
    return (
        f"{expected} for model '{spec.name}'. Got input(s) {_names(given[::-1])}, but missing required input(s) "
        f"{_names(missing)}. Please provide all required input(s)."
    )


def _check_batch(spec: ModelSpec, inputs: Sequence[NamedShape], label: str) -> int:
    rows = None
    for given in inputs:
        if not given.shape:
            raise InvalidArgumentError(
                f"{label}input '{given.name}' has no shape but model requires batch dimension for '{spec.name}'"
            )
        # The first dimension of a shape tensor is no batch dimension.
        if spec.inputs[given.name].is_shape_tensor:
            continue
        if rows is None:
            rows = given.shape[0]
        elif given.shape[0] != rows or rows < 0:
            raise InvalidArgumentError(
                f"{label}input '{given.name}' batch size does not match other inputs for '{spec.name}'"
            )
    # No input has a batch dimension.
    if rows is None:
        return 1
    # A negative size counts as a very large one, as in the reference.
    if rows > spec.max_batch_size or rows < 0:
        raise InvalidArgumentError(
            f"{label}inference request batch-size must be <= {spec.max_batch_size} for '{spec.name}'"
        )
    if rows == 0:
        raise InvalidArgumentError(f"{label}inference request batch-size must be at least 1 for '{spec.name}', got 0")
    return rows


def _check_tensor(spec: ModelSpec, tensor: TensorSpec, given: NamedShape, label: str) -> None:
    if given.dtype is not tensor.dtype:
        raise InvalidArgumentError(
            f"{label}inference input '{given.name}' data-type is '{given.dtype.wire}', but model '{spec.name}' expects "
            f"'{tensor.dtype.wire}'"
        )
    expected, found = tensor.shape, given.shape
    # A negative size matches nothing, not even a variable dimension.
    if len(expected) != len(found) or any(f < 0 or e not in (-1, f) for e, f in zip(expected, found, strict=True)):
        note = _BATCH_NOTE if spec.max_batch_size else ""
        raise InvalidArgumentError(
            f"{label}unexpected shape for input '{given.name}' for model '{spec.name}'. Expected {_dims(expected)}, "
            f"got {_dims(found)}. {note}"
        )


def _key(spec: ModelSpec, name: str, item: tuple[int, ...], label: str) -> tuple[int, ...]:
    """The sizes of an item that must be equal in a batch: none of a ragged input, and -1 for a padded dim."""
    if spec.max_batch_size and spec.inputs[name].allow_ragged_batch:
        return ()
    pad = None if spec.assembly is None else spec.assembly.pads.get(name)
    if pad is None:
        return item
    for dim in pad.dims:
        if pad.buckets and item[dim] > pad.buckets[-1]:
            raise InvalidArgumentError(
                f"{label}input '{name}' for model '{spec.name}' has {item[dim]} in dim {dim}, which is padded to one "
                f"of {list(pad.buckets)}: nothing larger is taken"
            )
    return tuple(-1 if dim in pad.dims else size for dim, size in enumerate(item))


def _names(names: Sequence[str]) -> str:
    return "[" + ",".join(f"'{n}'" for n in names) + "]"


def _dims(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
