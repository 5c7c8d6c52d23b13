"""Instances on a GPU, whose tensors may stay there between the models of an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays
from naiad.backends.onnx.instance import OnnxInstance, failure
from naiad.tensor.device_tensor import Device, DeviceTensor

_NAMES: Final = {1: "cpu", 2: "cuda"}
"""What ONNX Runtime calls DLPack's types of devices."""


class DeviceOnnxInstance(OnnxInstance):
    """Numeric tensors, in the processor's memory and on a device.

    Args:
        dtypes: of the outputs.
    """

    def __init__(self, session: Any, options: Any, device: Device, dtypes: Mapping[str, np.dtype[Any]]) -> None:
        super().__init__(session, options)
        self._session = session
        self.device = device
        self._dtypes = dtypes

    def execute_on_device(self, inputs: Arrays, outputs: Sequence[str], resident: frozenset[str]) -> Arrays:
        """Run the model on tensors of the device; ``BackendError`` has ONNX Runtime's text when the run fails."""
        try:
            binding = self._bound(inputs, outputs, resident)
            self._session.run_with_iobinding(binding, self._options)
            binding.synchronize_outputs()
            values = zip(outputs, binding.get_outputs(), strict=True)
            return {name: self._resident(name, value) if name in resident else value.numpy() for name, value in values}
        except Exception as error:
            raise failure(error) from error

    def close(self) -> None:
        """Release the session."""
        super().close()
        del self._session

    def _bound(self, inputs: Mapping[str, Any], outputs: Sequence[str], resident: frozenset[str]) -> Any:
        import onnxruntime

        binding = self._session.io_binding()
        for name, array in inputs.items():
            if array.__class__ is DeviceTensor:
                binding.bind_ortvalue_input(name, onnxruntime.OrtValue.from_dlpack(array))
            else:
                binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in outputs:
            if name in resident and self.device is not None:
                binding.bind_output(name, _NAMES[self.device.kind], self.device.number)
            else:
                binding.bind_output(name)
        return binding

    def _resident(self, name: str, value: Any) -> Any:
        return DeviceTensor(value, self._dtypes[name], tuple(value.shape()), _fetched)


def _fetched(source: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = source.numpy()
    return array
