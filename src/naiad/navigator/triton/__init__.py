"""``nav.triton``: converted models in a model repository."""

from naiad.navigator.triton import model_repository
from naiad.navigator.triton.configs import BatcherConfig as DynamicBatcher
from naiad.navigator.triton.configs import (
    InputTensorSpec,
    InstanceGroup,
    ONNXModelConfig,
    OutputTensorSpec,
    PythonModelConfig,
    PyTorchModelConfig,
    TensorFlowModelConfig,
)

__all__ = [
    "DynamicBatcher",
    "InputTensorSpec",
    "InstanceGroup",
    "ONNXModelConfig",
    "OutputTensorSpec",
    "PyTorchModelConfig",
    "PythonModelConfig",
    "TensorFlowModelConfig",
    "model_repository",
]
