"""Parts of the original's configurations of models: tensors, instances, batching, warm-up and accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from naiad.navigator.exceptions import ModelNavigatorWrongParameterError
from naiad.navigator.triton.kinds import check_kind
from naiad.pytriton.model_config import DeviceKind


class InputTensorFormat(Enum):
    """How the axes of an image lie."""

    FORMAT_NONE = 0
    FORMAT_NHWC = 1
    FORMAT_NCHW = 2


class Platform(StrEnum):
    """What stands in a configuration in place of the backend."""

    ONNXRuntimeONNX = "onnxruntime_onnx"
    TensorRTPlan = "tensorrt_plan"
    PyTorchLibtorch = "pytorch_libtorch"
    TensorFlowGraphDef = "tensorflow_graphdef"
    TensorFlowSavedModel = "tensorflow_savedmodel"


class TensorRTOptPrecision(StrEnum):
    """What TensorRT may compute in."""

    FP16 = "fp16"
    FP32 = "fp32"


class ModelWarmupInputDataType(StrEnum):
    """What a warm-up input holds."""

    ZERO = "ZERO"
    RANDOM = "RANDOM"
    FILE = "FILE"


@dataclass
class BaseTensorSpec:
    """One tensor.

    Attributes:
        shape: without the batch, -1 for any size.
        dtype: a numpy type; None for FP32.
        reshape: the shape that the model wants in its place.
    """

    name: str
    shape: Sequence[int]
    dtype: Any = None
    reshape: Sequence[int] = ()
    is_shape_tensor: bool | None = False

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            ModelNavigatorWrongParameterError: a size is neither -1 nor above 0.
        """
        wrong = [size for size in (*self.shape, *self.reshape) if size != -1 and size < 1]
        if wrong:
            raise ModelNavigatorWrongParameterError(
                f"tensor '{self.name}': found the shape {tuple(self.shape)} and the reshape {tuple(self.reshape)}, "
                "expected sizes of -1 or from 1 on"
            )


@dataclass
class InputTensorSpec(BaseTensorSpec):
    """An input."""

    optional: bool = False
    format: InputTensorFormat | None = None
    allow_ragged_batch: bool = False


@dataclass
class OutputTensorSpec(BaseTensorSpec):
    """An output; ``label_filename`` is of a file in the model's folder."""

    label_filename: str | None = None


@dataclass
class InstanceGroup:
    """Instances of a model."""

    kind: DeviceKind | None = None
    count: int | None = None
    name: str | None = None
    gpus: Sequence[int] = ()
    passive: bool = False
    host_policy: str | None = None
    profile: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the count, and that only instances on GPUs name some.

        Raises:
            ModelNavigatorWrongParameterError: they are wrong.
        """
        if self.count is not None and self.count < 1:
            raise ModelNavigatorWrongParameterError(
                f"found count={self.count} of an instance group, expected 1 or more"
            )
        if self.gpus and self.kind == DeviceKind.KIND_CPU:
            raise ModelNavigatorWrongParameterError(f"found gpus={list(self.gpus)} of instances of KIND_CPU")


@dataclass
class ModelWarmupInput:
    """An input of a warm-up request; ``input_data_file`` for ``ModelWarmupInputDataType.FILE``."""

    shape: Sequence[int]
    dtype: Any
    input_data_type: ModelWarmupInputDataType
    input_data_file: Path | None = None

    def __post_init__(self) -> None:
        """Check that a file is there if one is meant.

        Raises:
            ModelNavigatorWrongParameterError: it is not, or there is one too many.
        """
        if (self.input_data_type == ModelWarmupInputDataType.FILE) != (self.input_data_file is not None):
            raise ModelNavigatorWrongParameterError(
                f"found input_data_file={self.input_data_file} of a warm-up input of type {self.input_data_type}: "
                "FILE needs one, and the others have none"
            )


@dataclass
class ModelWarmup:
    """Requests that run before a model serves."""

    inputs: Mapping[str, ModelWarmupInput]
    batch_size: int = 1
    iterations: int = 0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ModelNavigatorWrongParameterError: one of them is too small.
        """
        if self.batch_size < 1 or self.iterations < 0:
            raise ModelNavigatorWrongParameterError(
                f"found batch_size={self.batch_size} and iterations={self.iterations} of a warm-up, expected 1 or more "
                "and 0 or more"
            )


@dataclass
class TensorRTAccelerator:
    """TensorRT inside another framework; ``max_workspace_size`` in MiB."""

    precision: TensorRTOptPrecision = TensorRTOptPrecision.FP32
    max_workspace_size: int | None = None
    max_cached_engines: int | None = None
    minimum_segment_size: int | None = None


@dataclass
class OpenVINOAccelerator:
    """OpenVINO inside ONNX Runtime."""


@dataclass
class AutoMixedPrecisionAccelerator:
    """Half precision inside TensorFlow."""


@dataclass
class GPUIOAccelerator:
    """Inputs and outputs of TensorFlow on the GPU."""


@dataclass
class ONNXOptimization:
    """How ONNX Runtime is made faster."""

    accelerator: OpenVINOAccelerator | TensorRTAccelerator

    def __post_init__(self) -> None:
        """Check the accelerator; errors as ``check_kind``."""
        check_kind("accelerator", self.accelerator, OpenVINOAccelerator, TensorRTAccelerator)


@dataclass
class TensorFlowOptimization:
    """How TensorFlow is made faster."""

    accelerator: AutoMixedPrecisionAccelerator | GPUIOAccelerator | TensorRTAccelerator

    def __post_init__(self) -> None:
        """Check the accelerator; errors as ``check_kind``."""
        kinds = (AutoMixedPrecisionAccelerator, GPUIOAccelerator, TensorRTAccelerator)
        check_kind("accelerator", self.accelerator, *kinds)


@dataclass
class TensorRTOptimization:
    """How a plan of TensorRT is run."""

    cuda_graphs: bool = False
    gather_kernel_buffer_threshold: int | None = None
    eager_batching: bool = False

    def __post_init__(self) -> None:
        """Check that it says something.

        Raises:
            ModelNavigatorWrongParameterError: it does not.
        """
        if not (self.cuda_graphs or self.gather_kernel_buffer_threshold or self.eager_batching):
            raise ModelNavigatorWrongParameterError(
                "found a TensorRTOptimization without cuda_graphs, gather_kernel_buffer_threshold and eager_batching"
            )


Optimization = ONNXOptimization | TensorFlowOptimization | TensorRTOptimization
