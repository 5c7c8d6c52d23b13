"""Running a TorchScript module: arrays to arguments, the call, results to arrays."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.shared.bytes_io import decode_list, encode_list
from naiad.backends.torch.on_device import dlpack_device, joined, resident_tensor, synchronise, to_device
from naiad.backends.torch.session import MemoryEffects, failure_text
from naiad.backends.torch.tensors import to_array, to_tensor
from naiad.errors import BackendError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from naiad.backends.torch.signature import Argument
    from naiad.tensor.device_tensor import DeviceTensor


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How a model is called; the same for all its instances.

    ``arguments`` pairs configured inputs with forward's arguments, in order, and is empty for a dictionary;
    ``positional`` is True when they are forward's first arguments, none left out in between.
    ``places`` are the positions of the outputs among the returned values. ``rows`` is True when the model batches.
    """

    arguments: tuple[tuple[str, Argument], ...]
    positional: bool
    places: Mapping[str, int]
    strings: frozenset[str]
    rows: bool
    returns_strings: bool
    effects: MemoryEffects
    inference_mode: bool
    optimized: bool
    clean_cache: bool
    cudnn: bool


class TorchInstance(Instance):
    """The call of one module on one device; ``device`` is None for the processor."""

    cuts_rows = True

    def __init__(self, forward: Callable[..., Any], plan: CallPlan, device: str | None) -> None:
        import torch

        self._torch = torch
        self._forward = forward
        self._plan = plan
        self._device = device
        self.device = None if device is None else dlpack_device(torch, device)
        self._names = tuple(name for name, _ in plan.arguments)

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs.

        Raises:
            BackendError: forward failed, with its last words, or returned something else than configured.
            InvalidArgumentError: a BYTES element is not UTF-8.
        """
        result = self.results(self.returned(inputs), outputs)
        # When the results have left the device.
        if self._plan.clean_cache and self._device is not None:
            self._torch.cuda.empty_cache()
        return result

    def execute_on_device(self, inputs: Arrays, outputs: Sequence[str], resident: frozenset[str]) -> Arrays:
        """The wanted outputs, those of ``resident`` as tensors on the device; errors as ``execute``."""
        returned = self.returned(inputs)
        result = self._results(
            returned, outputs, lambda name, v: self._keep(name, v) if name in resident else self._result(name, v)
        )
        synchronise(self._torch, self._device)
        return result

    def join(self, tensors: Sequence[DeviceTensor]) -> DeviceTensor:
        return joined(self._torch, tensors)

    def results(self, returned: Any, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs among what forward returned; ``BackendError`` when it is not as configured."""
        return self._results(returned, outputs, self._result)

    def close(self) -> None:
        """Release the module."""
        del self._forward

    def returned(self, inputs: Arrays) -> Any:
        """Call forward and return its result; ``BackendError`` when it fails."""
        args, kwargs = self._arguments(inputs)
        try:
            return self._call(args, kwargs)
        except Exception as error:
            raise BackendError(f"torch: {failure_text(error)}") from error

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        plan = self._plan
        torch = self._torch
        with torch.inference_mode() if plan.inference_mode else nullcontext():
            # The usual case, without two more context managers for each run.
            if plan.optimized and (plan.cudnn or self._device is None):
                return self._forward(*args, **kwargs)
            with torch.jit.optimized_execution(plan.optimized), torch.backends.cudnn.flags(enabled=plan.cudnn):
                return self._forward(*args, **kwargs)

    def _arguments(self, inputs: Arrays) -> tuple[list[Any], dict[str, Any]]:
        names = self._names
        if not names:
            return [{name: self._argument(name, array) for name, array in inputs.items()}], {}
        # By position where nothing is left out: the call then matches no names.
        if len(inputs) == len(names) and self._plan.positional:
            return [self._argument(name, inputs[name]) for name in names], {}
        return [], self._keywords(inputs)

    def _keywords(self, inputs: Arrays) -> dict[str, Any]:
        """The arguments by name: an optional input that a request leaves out has its default, or None."""
        given: dict[str, Any] = {}
        for name, argument in self._plan.arguments:
            if name in inputs:
                given[argument.name] = self._argument(name, inputs[name])
            elif not argument.has_default:
                given[argument.name] = None
        return given

    def _argument(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        if name in self._plan.strings:
            return decode_list(array, name)
        writes = self._plan.effects.writes_inputs
        if self._device is None:
            return to_tensor(self._torch, array, writes)
        return to_device(self._torch, array, writes, self._device)

    def _results(self, returned: Any, outputs: Sequence[str], result: Callable[[str, Any], Any]) -> Arrays:
        if isinstance(returned, dict):
            return {name: result(name, _by_key(returned, name)) for name in outputs}
        values = self._sequence(returned)
        places = self._plan.places
        try:
            return {name: result(name, values[places[name]]) for name in outputs}
        except IndexError:
            raise BackendError(
                f"torch: forward returned {len(values)} value(s), the configuration expects the outputs "
                f"{', '.join(places)}"
            ) from None

    def _sequence(self, returned: Any) -> Sequence[Any]:
        if isinstance(returned, self._torch.Tensor) or self._plan.returns_strings:
            return (returned,)
        if isinstance(returned, (tuple, list)):
            return returned
        raise BackendError(
            f"torch: forward returned {type(returned).__name__}, expected a tensor, a tuple or list of tensors, a "
            f"dictionary of tensors or a list of strings"
        )

    def _result(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        if name in self._plan.strings:
            return self._string_result(name, value)
        if not isinstance(value, self._torch.Tensor):
            raise BackendError(f"torch: output '{name}' is {type(value).__name__}, expected a tensor")
        try:
            return to_array(self._torch, value, self._plan.effects.returns_state)
        except (TypeError, RuntimeError) as error:
            raise not_an_array(f"output '{name}' ({value.dtype}, {value.layout})", error) from error

    def _keep(self, name: str, value: Any) -> DeviceTensor | np.ndarray[Any, Any]:
        """An output that stays on the device, where it is there."""
        if not isinstance(value, self._torch.Tensor) or dlpack_device(self._torch, value.device) != self.device:
            return self._result(name, value)
        return resident_tensor(self._torch, value, self._plan.effects.returns_state)

    def _string_result(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BackendError(f"torch: output '{name}' is {type(value).__name__}, expected a list of strings")
        array = encode_list(value)
        return array.reshape(-1, 1) if self._plan.rows else array


def not_an_array(output: str, error: Exception) -> BackendError:
    """The error for an output that cannot be made an array, or whose run fails only now, when it is waited for."""
    text = first_line(error)
    return BackendError(f"torch: {text}" if text.startswith("CUDA error") else f"torch: {output} is no array: {text}")


def _by_key(returned: dict[str, Any], name: str) -> Any:
    try:
        return returned[name]
    except KeyError:
        raise BackendError(f"torch: forward returned the keys {sorted(returned)}, without '{name}'") from None
