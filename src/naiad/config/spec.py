"""``ModelSpec``: the frozen view of a completed, valid model configuration that everything after loading reads.

The protobuf message stays in ``config/``; nothing on the way of a request touches it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.config.warmup import WarmupSample
    from naiad.tensor.dtypes import DataType


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model.

    ``dims`` are the configured dims without the batch dimension, -1 where variable. ``shape`` is what a client sends or
    gets: ``dims`` with a leading -1 when the model batches. ``reshape`` is the shape (without batch) that the model
    itself sees when the configuration reshapes, else None. ``labels`` are the names of an output's classes.
    """

    name: str
    dtype: DataType
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    allow_ragged_batch: bool = False
    is_shape_tensor: bool = False
    label_filename: str = ""
    labels: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchingSpec:
    """The ``dynamic_batching`` section; ``preferred_batch_sizes`` is sorted and never empty."""

    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_ns: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class InstanceGroupSpec:
    """One ``instance_group`` entry after normalisation: ``count`` instances (per GPU for KIND_GPU)."""

    name: str
    kind: str
    count: int
    gpus: tuple[int, ...] = ()
    passive: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model configuration as the running server uses it. ``max_batch_size`` 0 means no batch dimension.

    ``accelerators`` are the names under ``optimization.execution_accelerators``, those for GPUs first.
    """

    name: str
    platform: str
    backend: str
    max_batch_size: int
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    instance_groups: tuple[InstanceGroupSpec, ...]
    batching: BatchingSpec | None = None
    default_model_filename: str = ""
    graph_level: int | None = None
    decoupled: bool = False
    accelerators: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    warmup: tuple[WarmupSample, ...] = ()

    @property
    def instance_count(self) -> int:
        """How many instances run requests (passive ones do not)."""
        return sum(g.count for g in self.instance_groups if not g.passive)

    @property
    def has_optional_inputs(self) -> bool:
        return any(t.optional for t in self.inputs.values())
