"""The original's configurations of models, one class for each backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from naiad.navigator.exceptions import ModelNavigatorWrongParameterError
from naiad.navigator.triton.kinds import check_kind
from naiad.navigator.triton.sequences import SequenceBatcherConfig
from naiad.navigator.triton.settings import (
    InputTensorSpec,
    InstanceGroup,
    ModelWarmup,
    ONNXOptimization,
    Optimization,
    OutputTensorSpec,
    Platform,
    TensorFlowOptimization,
    TensorRTOptimization,
)
from naiad.pytriton.model_config import DynamicBatcher


@dataclass
class BaseSpecializedModelConfig:
    """What all configurations have.

    Raises:
        ModelNavigatorWrongParameterError: from the constructor: ``max_batch_size`` is below 1, the batcher is none, or
            the platform, the optimization or the profiles of instances are of another backend.
    """

    backend: ClassVar[str] = ""
    file: ClassVar[str] = ""
    is_folder: ClassVar[bool] = False
    """Whether the model itself may be a folder, rather than files of its version."""
    platforms: ClassVar[tuple[Platform, ...]] = ()
    """Those that may stand in place of the backend; the first one does by itself where the backend has none."""
    optimizations: ClassVar[type | None] = None
    has_profiles: ClassVar[bool] = False

    max_batch_size: int = 4
    batching: bool = True
    default_model_filename: str | None = None
    batcher: DynamicBatcher | SequenceBatcherConfig = field(default_factory=DynamicBatcher)
    instance_groups: Sequence[InstanceGroup] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    response_cache: bool = False
    warmup: Mapping[str, ModelWarmup] = field(default_factory=dict)
    inputs: Sequence[InputTensorSpec] = ()
    outputs: Sequence[OutputTensorSpec] = ()
    platform: Platform | None = None
    optimization: Optimization | None = None

    def __post_init__(self) -> None:
        """Check what does not fit; errors as the class."""
        if self.batching and self.max_batch_size < 1:
            raise ModelNavigatorWrongParameterError(
                f"found max_batch_size={self.max_batch_size}, expected 1 or more, or batching=False"
            )
        if self.platform is not None and self.platform not in self.platforms:
            raise ModelNavigatorWrongParameterError(
                f"found platform={self.platform}, expected one of {', '.join(self.platforms) or 'none'}"
            )
        check_kind("batcher", self.batcher, DynamicBatcher, SequenceBatcherConfig)
        if not self.has_profiles and any(group.profile for group in self.instance_groups):
            raise ModelNavigatorWrongParameterError("found a profile of an instance group, which TensorRT alone has")
        wanted = self.optimizations
        if self.optimization is not None and (wanted is None or not isinstance(self.optimization, wanted)):
            raise ModelNavigatorWrongParameterError(
                f"found optimization={self.optimization}, expected {wanted.__name__ if wanted else 'none'}"
            )

    @property
    def place(self) -> str:
        """The name of the file or folder in a version's folder."""
        is_graph = self.platform is Platform.TensorFlowGraphDef
        return self.default_model_filename or ("model.graphdef" if is_graph else self.file)


@dataclass
class ONNXModelConfig(BaseSpecializedModelConfig):
    """ONNX Runtime."""

    backend: ClassVar[str] = "onnxruntime"
    file: ClassVar[str] = "model.onnx"
    platforms: ClassVar[tuple[Platform, ...]] = (Platform.ONNXRuntimeONNX,)
    optimizations: ClassVar[type | None] = ONNXOptimization


@dataclass
class PyTorchModelConfig(BaseSpecializedModelConfig):
    """TorchScript, or an archive of torch.export."""

    backend: ClassVar[str] = "pytorch"
    file: ClassVar[str] = "model.pt"
    is_folder: ClassVar[bool] = True
    platforms: ClassVar[tuple[Platform, ...]] = (Platform.PyTorchLibtorch,)


@dataclass
class TensorFlowModelConfig(BaseSpecializedModelConfig):
    """A SavedModel, or a frozen graph by its platform."""

    file: ClassVar[str] = "model.savedmodel"
    is_folder: ClassVar[bool] = True
    platforms: ClassVar[tuple[Platform, ...]] = (Platform.TensorFlowSavedModel, Platform.TensorFlowGraphDef)
    optimizations: ClassVar[type | None] = TensorFlowOptimization


@dataclass
class TensorRTModelConfig(BaseSpecializedModelConfig):
    """A plan of TensorRT."""

    backend: ClassVar[str] = "tensorrt"
    file: ClassVar[str] = "model.plan"
    platforms: ClassVar[tuple[Platform, ...]] = (Platform.TensorRTPlan,)
    optimizations: ClassVar[type | None] = TensorRTOptimization
    has_profiles: ClassVar[bool] = True


@dataclass
class PythonModelConfig(BaseSpecializedModelConfig):
    """A Python model."""

    backend: ClassVar[str] = "python"
    file: ClassVar[str] = "model.py"
