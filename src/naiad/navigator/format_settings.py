"""The original's settings of formats: ``custom_configs``. Naiad reads the opset of ONNX; the others have no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self


class JitType(StrEnum):
    """How TorchScript is made."""

    SCRIPT = "script"
    TRACE = "trace"


class AutocastType(Enum):
    """The datatype of torch's autocast: the device's own, or one of 16 bits."""

    DEVICE = None
    FP16 = "torch.float16"
    BF16 = "torch.bfloat16"


class TensorRTPrecision(StrEnum):
    """Precisions of TensorRT."""

    INT8 = "int8"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"
    NVFP4 = "nvfp4"


class TensorRTPrecisionMode(StrEnum):
    """How TensorRT chooses among precisions."""

    HIERARCHY = "hierarchy"
    SINGLE = "single"
    MIXED = "mixed"


class ShapeTuple(NamedTuple):
    """Shapes of one tensor, the batch included."""

    min: Sequence[int]
    opt: Sequence[int]
    max: Sequence[int]


class TensorRTProfile(dict[str, ShapeTuple]):
    """Shapes by the names of the inputs."""

    def add(self, name: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> Self:
        """Set the shapes of one input; return the profile, so that calls can be chained."""
        self[name] = ShapeTuple(min, opt, max)
        return self


@dataclass
class CustomConfig:
    """Base of the settings of formats."""

    custom_args: Mapping[str, Any] | None = field(default_factory=dict, kw_only=True)
    device: str | None = field(default=None, kw_only=True)


@dataclass
class OnnxTraceExportConfig:
    """The older exporter of torch; Naiad makes it as ``onnx-trace``."""


@dataclass
class OnnxDynamoExportConfig:
    """The exporter on ``torch.export``; Naiad makes it as ``onnx``."""

    dynamo_dynamic_shapes: bool | None = None


@dataclass
class OnnxConfig(CustomConfig):
    """Settings of ONNX."""

    opset: int | None = 0
    onnx_extended_conversion: bool = False
    graph_surgeon_optimization: bool = True
    export_device: str | None = None
    dynamic_axes: Any = None
    model_path: str | Path | None = None
    export_engine: Any = ()


@dataclass
class TorchConfig(CustomConfig):
    """Settings of torch."""

    autocast: bool = False
    autocast_dtype: Any = None
    inference_mode: bool = True


@dataclass
class TorchScriptConfig(CustomConfig):
    """Settings of TorchScript."""

    jit_type: JitType | str | Sequence[JitType | str] = (JitType.SCRIPT, JitType.TRACE)
    strict: bool = True
    autocast: bool = False
    autocast_dtype: Any = None
    inference_mode: bool = True


@dataclass
class TorchExportConfig(CustomConfig):
    """Settings of torch.export."""

    autocast: bool = False
    autocast_dtype: Any = None
    inference_mode: bool = True


@dataclass
class TensorFlowConfig(CustomConfig):
    """Settings of TensorFlow."""

    jit_compile: Any = None
    enable_xla: Any = None


@dataclass
class _TensorRTSettings(CustomConfig):
    """What all formats of TensorRT have."""

    trt_profiles: Sequence[TensorRTProfile] | None = None
    trt_profile: TensorRTProfile | None = None
    precision: Any = None
    precision_mode: TensorRTPrecisionMode | str = TensorRTPrecisionMode.HIERARCHY
    max_workspace_size: int | None = None
    conversion_fallback: bool = False


@dataclass
class TensorRTConfig(_TensorRTSettings):
    """Settings of TensorRT."""

    optimization_level: int | None = None
    compatibility_level: Any = None
    onnx_parser_flags: Sequence[int] | None = None
    timing_cache_dir: str | Path | None = None
    model_path: str | Path | None = None


@dataclass
class TorchTensorRTConfig(_TensorRTSettings):
    """Settings of TensorRT inside torch, a format that Naiad does not make."""

    pickle_protocol: int | None = None


@dataclass
class TensorFlowTensorRTConfig(_TensorRTSettings):
    """Settings of TensorRT inside TensorFlow, a format that Naiad does not make."""

    minimum_segment_size: int | None = None
