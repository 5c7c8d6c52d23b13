"""The original's configurations of models, one class for each backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass
class InputTensorSpec:
    """One tensor; ``shape`` is without the batch, ``dtype`` a numpy type."""

    name: str
    shape: Sequence[int]
    dtype: Any = None
    optional: bool = False


@dataclass
class OutputTensorSpec:
    """One tensor; ``shape`` is without the batch, ``dtype`` a numpy type."""

    name: str
    shape: Sequence[int]
    dtype: Any = None
    label_filename: str | None = None


@dataclass
class BatcherConfig:
    """Joins requests into batches."""

    max_queue_delay_microseconds: int = 0
    preferred_batch_size: Sequence[int] | None = None


@dataclass
class InstanceGroup:
    """Instances of a model."""

    kind: Any = None
    count: int | None = None


@dataclass
class SpecializedModelConfig:
    """What all configurations have."""

    platform: ClassVar[str] = ""
    backend: ClassVar[str] = ""
    file: ClassVar[str] = ""
    max_batch_size: int = 4
    batching: bool = True
    default_model_filename: str | None = None
    batcher: BatcherConfig = field(default_factory=BatcherConfig)
    instance_groups: Sequence[InstanceGroup] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    response_cache: bool = False
    inputs: Sequence[InputTensorSpec] = ()
    outputs: Sequence[OutputTensorSpec] = ()


@dataclass
class ONNXModelConfig(SpecializedModelConfig):
    """ONNX Runtime."""

    backend: ClassVar[str] = "onnxruntime"
    file: ClassVar[str] = "model.onnx"


@dataclass
class PyTorchModelConfig(SpecializedModelConfig):
    """TorchScript, or an archive of torch.export."""

    backend: ClassVar[str] = "pytorch"
    file: ClassVar[str] = "model.pt"


@dataclass
class TensorFlowModelConfig(SpecializedModelConfig):
    """A SavedModel."""

    platform: ClassVar[str] = "tensorflow_savedmodel"
    file: ClassVar[str] = "model.savedmodel"


@dataclass
class PythonModelConfig(SpecializedModelConfig):
    """A Python model."""

    backend: ClassVar[str] = "python"
    file: ClassVar[str] = "model.py"
