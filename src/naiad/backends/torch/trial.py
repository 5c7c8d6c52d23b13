"""Runs on zeros while a model loads: whether it takes and returns what is configured, where its file says neither."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backends.shared.signature import ModelTensor, check_signature, shape_text
from naiad.backends.torch.framework import import_dynamo
from naiad.backends.torch.instance import CallPlan, TorchInstance
from naiad.backends.torch.session import MemoryEffects
from naiad.errors import BackendError, ModelLoadError
from naiad.tensor.dtypes import BY_NUMPY

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.backend_api.backend import Arrays
    from naiad.backends.torch.data_guard import DataGuard
    from naiad.config.spec import ModelSpec

log = logging.getLogger("naiad")

# Words of torch about types that do not fit, which do not depend on the data.
_ABOUT_TYPES: Final = re.compile(r"same dtype|\bscalar types?\b")
# For dims of any size, one after another: a model may need equal sizes, or room for its kernels.
_GUESSED_SIZES: Final = (1, 8, 64)
_NOT_CHECKED: Final = "model '%s' does not run on zeros, so its outputs are not checked: %s"
# Words that only a run without data brings.
_ABOUT_DEVICES: Final = re.compile(r"\bmeta\b|\bdevices?\b|NotImplementedError", re.IGNORECASE)


class ShapesOnly:
    """A ``forward`` of which types and shapes alone are computed, on torch's device ``meta``: without data and weights.

    Its arguments and results are tensors of the processor; those of the results hold anything.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils import _pytree as pytree

        # A run without data needs it.
        import_dynamo()

        def moved(value: Any, device: str) -> Any:
            is_tensor = isinstance(value, torch.Tensor)
            return torch.empty(value.shape, dtype=value.dtype, device=device) if is_tensor else value

        args, kwargs = pytree.tree_map(lambda value: moved(value, "meta"), (args, kwargs))
        # Tensors that forward makes itself belong there too.
        with torch.device("meta"):
            returned = self._forward(*args, **kwargs)
        return pytree.tree_map(lambda value: moved(value, "cpu"), returned)


def shapes_only(forward: Callable[..., Any], plan: CallPlan) -> TorchInstance:
    """An instance that computes types and shapes alone."""
    # Without effects no input is copied, so that large zeros take no memory.
    effects = MemoryEffects(writes_inputs=False, writes_state=False, returns_state=False)
    return TorchInstance(ShapesOnly(forward), replace(plan, effects=effects), None)


def zero_inputs(spec: ModelSpec, rows: int = 1, size: int | None = None) -> Arrays | None:
    """Zeros for all inputs, ``rows`` of them where the model batches; None where the shapes are not fixed.

    With a ``size`` that is the one of all variable dims.
    """
    tensors = spec.inputs.values()
    shapes = {t.name: t.dims if t.reshape is None else t.reshape for t in tensors}
    if any(t.allow_ragged_batch or t.dtype.is_bytes for t in tensors):
        return None
    if any(-1 in shape for shape in shapes.values()):
        if size is None:
            return None
        shapes = {name: tuple(size if dim == -1 else dim for dim in shape) for name, shape in shapes.items()}
    lead = (rows,) if spec.max_batch_size else ()
    return {t.name: np.zeros((*lead, *shapes[t.name]), t.dtype.numpy) for t in tensors}


def check_run(
    spec: ModelSpec,
    model: TorchInstance,
    without_data: Callable[[], TorchInstance],
    guard: DataGuard | None = None,
) -> None:
    """Run a model once on zeros and compare what it returns with the configuration.

    Where it fails, the configuration is at fault only if torch names the types, or if the model fails ``without_data``
    too, in any number of rows: zeros may be no input that it takes. A run that the ``guard`` ends says nothing.

    Raises:
        ModelLoadError: the model takes no inputs of the configured types and shapes, or returns other outputs.
    """
    zeros = zero_inputs(spec)
    if zeros is None:
        _check_variable(spec, lambda: model, without_data)
        return
    try:
        with guard or nullcontext():
            returned = model.returned(zeros)
    except BackendError as error:
        if guard is not None and guard.has_looked:
            log.info(_NOT_CHECKED, spec.name, error)
            return
        if _ABOUT_TYPES.search(str(error)) or _fails_without_data(without_data, spec, _kind(error)):
            raise _refused(spec, error) from error
        log.info(_NOT_CHECKED, spec.name, error)
        return
    _check_returned(spec, model, returned)


def check_guarded(
    spec: ModelSpec,
    model: Callable[[], TorchInstance],
    without_data: Callable[[], TorchInstance],
    guard: DataGuard | None,
) -> None:
    """Compare a model whose code may do anything; errors as ``check_run``.

    It is not compared where its code looks at its data. That shows in the run on zeros, which the guard ends, or, for
    dims of any size and without a guard, in a run without data. The latter has torch import 75 MiB.
    """
    zeros = zero_inputs(spec)
    if zeros is None:
        _check_variable(spec, model, without_data)
        return
    if guard is None:
        sketch = _made(without_data, spec)
        failure = None if sketch is None else _failure_of(sketch, zeros)
        if sketch is not None and (failure is None or not _ABOUT_DEVICES.search(str(failure))):
            check_run(spec, model(), lambda: sketch)
        return
    check_run(spec, model(), without_data, guard)


def _check_variable(
    spec: ModelSpec, with_data: Callable[[], TorchInstance], without_data: Callable[[], TorchInstance]
) -> None:
    """Compare the types of a model with dims of any size with the configuration.

    Their sizes are guessed, without data first: where that fails nothing is known, as another size may fit.

    Raises:
        ModelLoadError: the model takes or returns other types, or returns other outputs.
    """
    guesses = [zeros for size in _GUESSED_SIZES if (zeros := zero_inputs(spec, size=size)) is not None]
    sketch = _made(without_data, spec) if guesses else None
    if sketch is None:
        return
    for zeros in guesses:
        failure = _failure_of(sketch, zeros)
        if failure is None or _ABOUT_TYPES.search(str(failure)):
            _check_types(spec, with_data(), zeros)
            return
        log.debug("model '%s' is not tried with dims of one guessed size: %s", spec.name, failure)


def _check_types(spec: ModelSpec, model: TorchInstance, zeros: Arrays) -> None:
    try:
        returned = model.returned(zeros)
    except BackendError as error:
        if _ABOUT_TYPES.search(str(error)):
            raise _refused(spec, error) from error
        log.info(_NOT_CHECKED, spec.name, error)
        return
    check_outputs(spec, _outputs_of(spec, model, returned), with_shapes=False)


def _check_returned(spec: ModelSpec, model: TorchInstance, returned: Any) -> None:
    outputs = _outputs_of(spec, model, returned)
    check_outputs(spec, outputs, with_shapes=False)
    _warn_of_shapes(spec, outputs)


def _outputs_of(spec: ModelSpec, model: TorchInstance, returned: Any) -> Arrays:
    try:
        return model.results(returned, tuple(spec.outputs))
    except BackendError as error:
        raise ModelLoadError(f"model '{spec.name}': the configuration does not fit the model: {error}") from error


def check_outputs(spec: ModelSpec, outputs: Arrays, with_shapes: bool = True) -> None:
    """Compare the datatypes, and with ``with_shapes`` the shapes, of outputs with the configuration.

    Raises:
        ModelLoadError: they differ; the text shows both sides.
    """
    # A run has accepted the inputs as they are configured.
    inputs = [ModelTensor(t.name, t.dtype, "", None) for t in spec.inputs.values()]
    found = []
    for name, tensor in spec.outputs.items():
        array = outputs[name]
        dtype = tensor.dtype if array.dtype == tensor.dtype.numpy else BY_NUMPY.get(array.dtype)
        shape = (-1, *array.shape[1:]) if spec.max_batch_size else array.shape
        found.append(ModelTensor(name, dtype, str(array.dtype), shape if with_shapes else None))
    check_signature(spec, inputs, found)


def _fails_without_data(make: Callable[[], TorchInstance], spec: ModelSpec, kind: str) -> bool:
    """Whether a model fails with an error of this kind for its types and shapes alone, however many rows there are."""
    model = _made(make, spec)
    if model is None:
        return False
    for rows in _rows(spec.max_batch_size):
        zeros = zero_inputs(spec, rows)
        failure = None if zeros is None else _failure_of(model, zeros)
        if failure is None or _kind(failure) != kind or _ABOUT_DEVICES.search(str(failure)):
            return False
    return True


def _made(make: Callable[[], TorchInstance], spec: ModelSpec) -> TorchInstance | None:
    try:
        return make()
    except Exception as error:
        log.debug("model '%s' cannot be tried without data: %s", spec.name, error)
        return None


def _failure_of(model: TorchInstance, zeros: Arrays) -> BackendError | None:
    try:
        model.returned(zeros)
    except BackendError as error:
        return error
    return None


def _kind(error: BackendError) -> str:
    """The class of torch's error, with which the text of all failed runs begins."""
    return ":".join(str(error).split(":", 2)[:2])


def _rows(max_batch_size: int) -> list[int]:
    """Numbers of rows to try: powers of two, and the largest. A model may be made for batches of one size."""
    powers = [1 << n for n in range(max_batch_size.bit_length()) if 1 << n < max_batch_size]
    return [*powers, max(1, max_batch_size)]


def _refused(spec: ModelSpec, error: BackendError) -> ModelLoadError:
    lead = ("-1",) if spec.max_batch_size else ()
    inputs = ", ".join(
        f"'{t.name}' {t.dtype.config} [{','.join((*lead, *map(str, t.dims if t.reshape is None else t.reshape)))}]"
        for t in spec.inputs.values()
    )
    note = f" (with the batch axis in front, as max_batch_size is {spec.max_batch_size})" if spec.max_batch_size else ""
    return ModelLoadError(
        f"model '{spec.name}': the configuration does not fit the model: it has the inputs {inputs}{note}, and forward "
        f"takes no such inputs: {error}; change data_type, dims or max_batch_size, or export the model again"
    )


def _warn_of_shapes(spec: ModelSpec, outputs: Arrays) -> None:
    """Only warn, as such models run: responses have the model's shapes, and the metadata those of the configuration."""
    for name, tensor in spec.outputs.items():
        if tensor.dtype.is_bytes or tensor.reshape is not None:
            continue
        shape = outputs[name].shape
        configured = (1, *tensor.dims) if spec.max_batch_size else tensor.dims
        if len(shape) != len(configured) or any(a not in (b, -1) for a, b in zip(configured, shape, strict=True)):
            own = shape[1:] if spec.max_batch_size else shape
            log.warning(
                "model '%s': output '%s' has dims %s in the configuration, and the model returns %s; write dims: %s",
                *(spec.name, name, shape_text(tensor.dims), shape_text(own), f"[ {', '.join(map(str, own)) or 1} ]"),
            )
