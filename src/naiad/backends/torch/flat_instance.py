"""Running an exported or compiled program: arrays to a list of tensors, the call, a list of values to arrays."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.torch.instance import not_an_array
from naiad.backends.torch.on_device import dlpack_device, joined, resident_tensor, synchronise, to_device
from naiad.backends.torch.tensors import to_array, to_tensor
from naiad.errors import BackendError, InvalidArgumentError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from naiad.tensor.device_tensor import DeviceTensor

# The beginning of the text with which torch refuses inputs of other shapes than were exported.
_REFUSED = "Guard failed: "


@dataclass(frozen=True, slots=True)
class FlatPlan:
    """How a program is called; the same for all its instances.

    Attributes:
        inputs: the names of the inputs in the order of the program.
        outputs: the places of the outputs in the list that it returns.
        scalars: the inputs and outputs that are scalars in the program, and have one element here.
        copies_inputs: whether it may write to its inputs.
        copies_outputs: whether its outputs may be memory that a later run changes.
        guard: raises AssertionError for tensors whose shapes the program does not take; None when that cannot be.
        inference_mode: whether runs leave out what only training needs.
    """

    inputs: tuple[str, ...]
    outputs: Mapping[str, int]
    scalars: frozenset[str]
    copies_inputs: bool
    copies_outputs: bool
    guard: Callable[..., Any] | None
    inference_mode: bool


class FlatInstance(Instance):
    """One program on one device; ``device`` is None for the processor."""

    cuts_rows = True

    def __init__(self, run: Callable[[list[Any]], Sequence[Any]], plan: FlatPlan, device: str | None) -> None:
        import torch

        self._torch = torch
        self._run = run
        self._plan = plan
        self._device = device
        self.device = None if device is None else dlpack_device(torch, device)

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs.

        Raises:
            BackendError: the program failed, with its own words.
            InvalidArgumentError: it does not take inputs of these shapes.
        """
        returned = self._returned(inputs)
        return {name: self._result(name, returned) for name in outputs}

    def execute_on_device(self, inputs: Arrays, outputs: Sequence[str], resident: frozenset[str]) -> Arrays:
        """The wanted outputs, those of ``resident`` as tensors on the device; errors as ``execute``."""
        returned = self._returned(inputs)
        result: dict[str, Any] = {
            name: self._keep(name, returned) if name in resident else self._result(name, returned) for name in outputs
        }
        synchronise(self._torch, self._device)
        return result

    def join(self, tensors: Sequence[DeviceTensor]) -> DeviceTensor:
        return joined(self._torch, tensors)

    def _returned(self, inputs: Arrays) -> Sequence[Any]:
        plan = self._plan
        try:
            tensors = [self._argument(name, inputs[name]) for name in plan.inputs]
            with self._torch.inference_mode() if plan.inference_mode else nullcontext():
                if plan.guard is not None:
                    plan.guard(*tensors)
                return self._run(tensors)
        except Exception as error:
            raise self._failure(error, inputs) from error

    def close(self) -> None:
        """Release the program."""
        del self._run

    def _argument(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        plan = self._plan
        if name in plan.scalars:
            array = np.asarray(array)
            array = array.reshape(()) if array.size == 1 else array
        if self._device is None:
            return to_tensor(self._torch, array, plan.copies_inputs)
        return to_device(self._torch, array, plan.copies_inputs, self._device)

    def _keep(self, name: str, returned: Sequence[Any]) -> DeviceTensor | np.ndarray[Any, Any]:
        """An output that stays on the device, where it is there."""
        place, torch = self._plan.outputs[name], self._torch
        value = returned[place] if place < len(returned) else None
        is_there = isinstance(value, torch.Tensor) and dlpack_device(torch, value.device) == self.device
        if not is_there or name in self._plan.scalars:
            return self._result(name, returned)
        return resident_tensor(torch, value, self._plan.copies_outputs)

    def _result(self, name: str, returned: Sequence[Any]) -> np.ndarray[Any, Any]:
        place = self._plan.outputs[name]
        if place >= len(returned) or not isinstance(returned[place], self._torch.Tensor):
            raise BackendError(f"torch: output '{name}' is no tensor: the program returned {len(returned)} value(s)")
        try:
            array = to_array(self._torch, returned[place], self._plan.copies_outputs)
        except (TypeError, RuntimeError) as error:
            raise not_an_array(f"output '{name}' ({returned[place].dtype})", error) from error
        return array.reshape(1) if name in self._plan.scalars and array.ndim == 0 else array

    def _failure(self, error: Exception, inputs: Arrays) -> Exception:
        text = first_line(error)
        if isinstance(error, AssertionError) and text.startswith(_REFUSED):
            shapes = ", ".join(f"'{name}' {list(array.shape)}" for name, array in inputs.items())
            return InvalidArgumentError(
                f"torch: the program takes no inputs of the shapes {shapes}; it needs {text.removeprefix(_REFUSED)}"
            )
        return BackendError(f"torch: {type(error).__name__}: {text}")
