"""The processor as a device: the backends' instances for GPUs, on models of real frameworks, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime

from naiad.backend_api.backend import Arrays, Backend, BackendContext, Instance
from naiad.backends.onnx.device_instance import DeviceOnnxInstance
from naiad.backends.python.in_thread import PythonThreadBackend
from naiad.backends.torch.script import ScriptModel
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.request import Outputs
from naiad.tensor.device_tensor import Device

PROCESSOR = Device(1, 0)


class OnnxOnDevice(Backend):
    """ONNX Runtime's instance for a GPU, on the processor."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._session: Any = None
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def start(self, spec: ModelSpec) -> None:
        assert self.context.version_directory is not None
        self._session = onnxruntime.InferenceSession(str(self.context.version_directory / "model.onnx"))
        self._dtypes = {name: tensor.dtype.numpy for name, tensor in spec.outputs.items()}

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        return DeviceOnnxInstance(self._session, onnxruntime.RunOptions(), PROCESSOR, self._dtypes)


class TorchOnDevice(Backend):
    """PyTorch's instance for a GPU: ``cpu:0`` is a device like any other."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._model = ScriptModel(context)

    def start(self, spec: ModelSpec) -> None:
        self._model.start(spec, "cpu:0")

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        return self._model.instance("cpu:0")


class PythonOnDevice(PythonThreadBackend):
    """A Python model in threads, as on a GPU with ``FORCE_CPU_ONLY_INPUT_TENSORS`` "no"."""

    def device(self, spec: ModelSpec, group: InstanceGroupSpec, index: int) -> Device:
        return PROCESSOR


class Remarks(Backend):
    """Gives ``x`` back as ``y``, with a parameter in each response; on the event loop."""

    def start(self, spec: ModelSpec) -> None:
        return

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        return RemarksInstance()

    @property
    def runs_inline(self) -> bool:
        return True


class RemarksInstance(Instance):
    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        return Outputs({"y": inputs["x"]}, {"remark": "as it was"})
