"""What the original's functions take: formats, devices, profiles and settings of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

import numpy as np

from naiad.convert.settings import Measuring
from naiad.navigator.exceptions import ModelNavigatorConfigurationError
from naiad.navigator.format_settings import (
    AutocastType,
    CustomConfig,
    JitType,
    OnnxConfig,
    OnnxDynamoExportConfig,
    OnnxTraceExportConfig,
    TensorFlowConfig,
    TensorFlowTensorRTConfig,
    TensorRTConfig,
    TensorRTPrecision,
    TensorRTPrecisionMode,
    TensorRTProfile,
    TorchConfig,
    TorchExportConfig,
    TorchScriptConfig,
    TorchTensorRTConfig,
)
from naiad.navigator.formats import (
    DEFAULT_NONE_FRAMEWORK_TARGET_FORMATS,
    DEFAULT_ONNX_TARGET_FORMATS,
    DEFAULT_TENSORFLOW_TARGET_FORMATS,
    DEFAULT_TORCH_TARGET_FORMATS,
    Format,
)
from naiad.navigator.strategies import (
    MaxThroughputAndMinLatencyStrategy,
    MaxThroughputStrategy,
    MaxThroughputWithLatencyBudgetStrategy,
    MinLatencyStrategy,
    RuntimeSearchStrategy,
    SelectedRuntimeStrategy,
)

__all__ = [
    "DEFAULT_NONE_FRAMEWORK_TARGET_FORMATS",
    "DEFAULT_ONNX_TARGET_FORMATS",
    "DEFAULT_TENSORFLOW_TARGET_FORMATS",
    "DEFAULT_TORCH_TARGET_FORMATS",
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
    "RuntimeSearchStrategy",
    "Sample",
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
]

Sample = dict[str, np.ndarray[Any, Any]]
"""Arrays by the names of inputs or outputs: what a data loader yields, and what ``verify_func`` gets."""


class DeviceKind(StrEnum):
    """Where a model runs. Naiad converts for the CPU."""

    CPU = "cpu"
    CUDA = "cuda"


class Framework(Enum):
    """What a model was written in."""

    TENSORFLOW = "tensorflow"
    TORCH = "torch"
    ONNX = "onnx"
    JAX = "jax"
    NONE = "none"
    TENSORRT = "tensorrt"


class CommandStatus(StrEnum):
    """How a step ended. Those of a profile are OK or FAIL."""

    OK = "OK"
    FAIL = "FAIL"
    NOOP = "NOOP"
    INITIALIZED = "INITIALIZED"
    SKIPPED = "SKIPPED"


class RunnerTensorType(StrEnum):
    """What a runner returns; the original's name for it is ``TensorType``."""

    NUMPY = "numpy"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"


TensorType = RunnerTensorType


@dataclass
class OptimizationProfile:
    """How formats are measured, with the original's fields. ``window_size`` and ``dataloader`` have no effect.

    Raises:
        ModelNavigatorConfigurationError: a number is too small, or the trials are fewer than the windows.
    """

    max_batch_size: int | None = None
    batch_sizes: Sequence[int | None] | None = None
    window_size: int = 50
    stability_percentage: float = 10.0
    stabilization_windows: int = 3
    min_trials: int = 3
    max_trials: int = 10
    throughput_cutoff_threshold: float | None = 0.05
    throughput_backoff_limit: int = 2
    dataloader: Any = None

    def __post_init__(self) -> None:
        for name in ("window_size", "stability_percentage", "stabilization_windows", "min_trials", "max_trials"):
            if getattr(self, name) < 1:
                raise ModelNavigatorConfigurationError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if self.throughput_backoff_limit < 0:
            found = self.throughput_backoff_limit
            raise ModelNavigatorConfigurationError(f"throughput_backoff_limit is {found}, expected 0 or more")
        if not self.stabilization_windows <= self.min_trials <= self.max_trials:
            raise ModelNavigatorConfigurationError(
                f"stabilization_windows is {self.stabilization_windows}, min_trials {self.min_trials} and max_trials"
                f" {self.max_trials}, expected none above the next one"
            )

    def measuring(self) -> Measuring:
        """The same for ``naiad.convert``."""
        sizes = tuple(size for size in self.batch_sizes or () if size)
        return Measuring(
            sizes,
            self.max_batch_size or 32,
            stability_percent=self.stability_percentage,
            max_trials=self.max_trials,
            cutoff=self.throughput_cutoff_threshold,
        )
