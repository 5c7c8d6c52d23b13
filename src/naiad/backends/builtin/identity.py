"""The backend ``identity``: output i is input i, untouched. For tests and for measuring the server itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from naiad.backend_api.backend import Arrays, Backend, Instance
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import shape_text
from naiad.errors import BackendError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from naiad.config.spec import InstanceGroupSpec, ModelSpec, TensorSpec
    from naiad.request import Array


class IdentityInstance(Instance):
    """Returns its inputs under the names of the outputs, after ``delay`` seconds."""

    takes_packed = True

    def __init__(self, pairs: Mapping[str, str], optional: Mapping[str, TensorSpec], delay: float) -> None:
        self._pairs = pairs
        self._optional = optional
        self._delay = delay

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The inputs themselves, without a copy, and zeros for an optional input that the request leaves out."""
        if self._delay:
            time.sleep(self._delay)
        pairs, optional = self._pairs, self._optional
        try:
            if not optional:
                return {n: inputs[pairs[n]] for n in outputs}
            # All inputs have the same number of rows.
            rows = next((len(array) for array in inputs.values()), 1)
            found = {n: inputs.get(pairs[n]) for n in outputs}
            return {n: _zeros(optional[pairs[n]], rows) if a is None else a for n, a in found.items()}
        except KeyError as error:
            raise BackendError(f"tensor {error} is not given; an output needs the input at its own place") from None


class IdentityBackend(Backend):
    """Returns its inputs; needs no model file. Parameters (all of them optional):

    ``execute_delay_ms``: every run takes this long. ``instance_wise_delay_multiplier``: the delay of instance i is
    multiplied by i times this value, where the first instance has index 0 and keeps the plain delay.
    ``creation_delay_sec``: how long loading takes.
    """

    _pairs: Mapping[str, str]
    _optional: Mapping[str, TensorSpec]
    _delay_s: float
    _multiplier: int

    def start(self, spec: ModelSpec) -> None:
        """Pair the tensors by their order; ``ModelLoadError`` when their count, types or shapes do not pair up."""
        reader = ParameterReader(spec.name, spec.parameters)
        self._delay_s = reader.number("execute_delay_ms", 0.0) / 1000
        self._multiplier = reader.integer("instance_wise_delay_multiplier", 0)
        creation_delay_s = reader.number("creation_delay_sec", 0.0)
        self._pairs = _pairs(spec)
        self._optional = {t.name: t for t in spec.inputs.values() if t.optional}
        time.sleep(creation_delay_s)

    @property
    def runs_inline(self) -> bool:
        """Without a delay there is nothing to wait for and nothing to compute."""
        return not self._delay_s

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance whose delay grows with ``index`` if there is a multiplier."""
        factor = max(1, self._multiplier * index)
        return IdentityInstance(self._pairs, self._optional, self._delay_s * factor)


def _zeros(tensor: TensorSpec, rows: int) -> Array:
    """Zeros for a missing input; variable dims are 1."""
    dims = [1 if dim < 0 else dim for dim in (tensor.dims if tensor.reshape is None else tensor.reshape)]
    if len(tensor.shape) > len(tensor.dims):
        dims = [rows, *dims]
    return np.full(dims, b"" if tensor.dtype.is_bytes else 0, tensor.dtype.numpy)


def _pairs(spec: ModelSpec) -> dict[str, str]:
    if len(spec.inputs) != len(spec.outputs):
        raise ModelLoadError(
            f"model '{spec.name}': identity needs as many outputs as inputs, "
            f"the configuration has {len(spec.inputs)} inputs and {len(spec.outputs)} outputs"
        )
    pairs = {}
    for given, made in zip(spec.inputs.values(), spec.outputs.values(), strict=True):
        _check_pair(spec.name, given, made)
        pairs[made.name] = given.name
    return pairs


def _check_pair(model: str, given: TensorSpec, made: TensorSpec) -> None:
    if given.dtype != made.dtype:
        raise ModelLoadError(
            f"model '{model}': output '{made.name}' must have the data type of input '{given.name}': "
            f"found {made.dtype.config}, expected {given.dtype.config}"
        )
    if given.allow_ragged_batch or made.allow_ragged_batch:
        # Elements one behind the other, in any number.
        return
    wanted, found = _inside(given), _inside(made)
    if _fixed_difference(wanted, found):
        raise ModelLoadError(
            f"model '{model}': output '{made.name}' must have the dims of input '{given.name}': "
            f"found {shape_text(found)}, expected {shape_text(wanted)}"
        )


def _inside(tensor: TensorSpec) -> tuple[int, ...]:
    """The dims of a tensor as the model sees them."""
    return tensor.dims if tensor.reshape is None else tensor.reshape


def _fixed_difference(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) != len(b) or any(x != y and -1 not in (x, y) for x, y in zip(a, b, strict=True))
