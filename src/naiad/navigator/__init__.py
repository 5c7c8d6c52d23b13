"""The names of Triton Model Navigator, on top of ``naiad.convert``: ``import naiad.navigator as nav``.

The original's scripts run with the import changed. They run on the CPU: a target device or a runner for a GPU is taken
without effect. ``jax``, ``tensorrt`` and the in-place API (``nav.Module``, ``nav.optimize``) are not here.
"""

from naiad.navigator import exceptions, onnx, package, python, pytriton, tensorflow, torch, triton
from naiad.navigator.configuration import (
    AutocastType,
    CommandStatus,
    CustomConfig,
    DeviceKind,
    Format,
    Framework,
    JitType,
    OnnxConfig,
    OnnxDynamoExportConfig,
    OnnxTraceExportConfig,
    OptimizationProfile,
    TensorFlowConfig,
    TensorFlowTensorRTConfig,
    TensorRTConfig,
    TensorRTPrecision,
    TensorRTPrecisionMode,
    TensorRTProfile,
    TensorType,
    TorchConfig,
    TorchExportConfig,
    TorchScriptConfig,
    TorchTensorRTConfig,
)
from naiad.navigator.converted import Package
from naiad.navigator.strategies import (
    MaxThroughputAndMinLatencyStrategy,
    MaxThroughputStrategy,
    MaxThroughputWithLatencyBudgetStrategy,
    MinLatencyStrategy,
    SelectedRuntimeStrategy,
)

__all__ = [
    "AutocastType",
    "CommandStatus",
    "CustomConfig",
    "DeviceKind",
    "Format",
    "Framework",
    "JitType",
    "MaxThroughputAndMinLatencyStrategy",
    "MaxThroughputStrategy",
    "MaxThroughputWithLatencyBudgetStrategy",
    "MinLatencyStrategy",
    "OnnxConfig",
    "OnnxDynamoExportConfig",
    "OnnxTraceExportConfig",
    "OptimizationProfile",
    "Package",
    "SelectedRuntimeStrategy",
    "TensorFlowConfig",
    "TensorFlowTensorRTConfig",
    "TensorRTConfig",
    "TensorRTPrecision",
    "TensorRTPrecisionMode",
    "TensorRTProfile",
    "TensorType",
    "TorchConfig",
    "TorchExportConfig",
    "TorchScriptConfig",
    "TorchTensorRTConfig",
    "exceptions",
    "onnx",
    "package",
    "python",
    "pytriton",
    "tensorflow",
    "torch",
    "triton",
]
