"""``ModelSpec``: the frozen view of a completed, valid model configuration that everything after loading reads.

The protobuf message stays in ``config/``; nothing on the way of a request touches it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from naiad.config.rate_limiter import NO_LIMITS, RateLimiterSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from naiad.config.assembly import BatchAssembly
    from naiad.config.ensemble import EnsembleSpec
    from naiad.config.warmup import WarmupSample
    from naiad.tensor.dtypes import DataType


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model.

    ``dims`` are the configured dims without the batch dimension, -1 where variable. ``shape`` is the shape for clients:
    ``dims`` with a leading -1 when the model batches. ``reshape`` is the shape (without batch) for the model itself
    when the configuration reshapes, else None. ``labels`` are the names of an output's classes: they do not count when
    tensors are compared.
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
    labels: Sequence[bytes] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class QueuePolicySpec:
    """A ``ModelQueuePolicy``: ``max_size`` and ``timeout_ns`` are 0 for no limit, ``delays`` is the action DELAY."""

    max_size: int = 0
    timeout_ns: int = 0
    allows_override: bool = False
    delays: bool = False

    def timeout_of(self, timeout_us: int) -> int:
        """How long a request may wait, in nanoseconds, 0 for ever; ``timeout_us`` is what it asks for itself, if not 0.

        A request can only lower the limit. Unlike in the reference it can do so where there is none, too.
        """
        own_ns = timeout_us * 1000 if self.allows_override else 0
        if own_ns and self.timeout_ns:
            return min(own_ns, self.timeout_ns)
        return own_ns or self.timeout_ns


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Priorities and policies of a queue.

    Attributes:
        levels: number of priorities, 1 to ``levels``; 0 for one queue without them.
        default_level: for requests without a priority, or with an unknown one.
        policy: of all levels that are not in ``level_policies``.
        max_wait_ns: a request that waited this long is served before any other, whatever its priority; 0 for never.
    """

    levels: int = 0
    default_level: int = 0
    policy: QueuePolicySpec = QueuePolicySpec()
    level_policies: Mapping[int, QueuePolicySpec] = field(default_factory=dict)
    max_wait_ns: int = 0

    def priority_of(self, requested: int) -> int:
        """The priority level of a request that states ``requested``."""
        return requested if 1 <= requested <= self.levels else self.default_level

    def policy_of(self, priority: int) -> QueuePolicySpec:
        """The queue policy of a priority level."""
        return self.level_policies.get(priority, self.policy)


@dataclass(frozen=True, slots=True)
class BatchingSpec:
    """The ``dynamic_batching`` section; ``preferred_batch_sizes`` is sorted and never empty."""

    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_ns: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class ControlSpec:
    """A tensor that tells a model about its sequences.

    Attributes:
        kind: "START", "READY", "END" or "CORRID".
        tensor: the input that the model gets; one element for each request.
        values: what stands for false and true; empty for CORRID.
    """

    kind: str
    tensor: TensorSpec
    values: tuple[int | float | bool, ...] = ()


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A tensor that a model returns with each request of a sequence, and gets with the next one.

    Attributes:
        initial_dims: of what it gets with the first request of a sequence, without the batch dimension.
        initial_file: the file with that tensor in the model's folder ``initial_state``; "" for zeros.
        initial: the content of that file, None for zeros; BYTES in their serialised form.
    """

    input: TensorSpec
    output: TensorSpec
    initial_dims: tuple[int, ...] = ()
    initial_file: str = ""
    initial: bytes | None = None


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """The ``sequence_batching`` section.

    Attributes:
        oldest: the strategy: ``oldest`` or, if not, ``direct``.
        slots: sequences that an instance has at a time.
        max_idle_ns: a sequence without a request for this long has ended.
        minimum_slot_utilization: direct; the part of the slots that are ready before a batch is sent within the delay.
        preferred_batch_sizes: oldest; sorted.
        iterative: a request without an id is a sequence of its own, and its model may have it run again.
    """

    oldest: bool
    slots: int
    max_idle_ns: int
    max_queue_delay_ns: int = 0
    minimum_slot_utilization: float = 0.0
    preferred_batch_sizes: tuple[int, ...] = ()
    preserve_ordering: bool = False
    controls: tuple[ControlSpec, ...] = ()
    states: tuple[StateSpec, ...] = ()
    iterative: bool = False


@dataclass(frozen=True, slots=True)
class InstanceGroupSpec:
    """One ``instance_group`` entry after normalisation: ``count`` instances, on all of its ``gpus`` together.

    Instance ``i`` is on the GPU ``gpus[i % len(gpus)]``. ``host_policy`` is "" for that of the device. ``profile`` has
    the optimisation profiles of a TensorRT plan that the instances use, empty for the first, and ``dla`` is the number
    of the deep learning accelerator that runs parts of it (``secondary_devices``), None for none.
    """

    name: str
    kind: str
    count: int
    gpus: tuple[int, ...] = ()
    passive: bool = False
    rate_limiter: RateLimiterSpec = NO_LIMITS
    host_policy: str = ""
    profile: tuple[str, ...] = ()
    dla: int | None = None

    def gpu(self, index: int) -> int | None:
        """The number of the GPU of the ``index``-th instance, None for one that is on none."""
        if self.kind != "KIND_GPU":
            return None
        gpus = self.gpus or (0,)
        return gpus[index % len(gpus)]


@dataclass(frozen=True, slots=True)
class AcceleratorSpec:
    """An entry under ``optimization.execution_accelerators``; ``on_gpu`` for those of instances on a GPU."""

    name: str
    on_gpu: bool
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model configuration as the running server uses it. ``max_batch_size`` 0 means no batch dimension.

    ``queue`` is None where requests are served in the order of arrival, without any limit. With ``is_cached``
    responses may come from the response cache. ``sequence`` is None for a model without sequences; ``inputs`` and
    ``outputs`` are those of clients, without controls and states. ``accelerators`` are those of
    ``optimization.execution_accelerators``, those for GPUs first. ``assembly`` is None where a batch is the rows of its
    requests, one behind the other. ``max_batch_bytes`` is 0 for no limit. ``splits_failed`` says that a batch that
    failed is run again in parts. ``ensemble`` is the graph of a model that is made of other models, None for the rest;
    ``depth`` is how deep ensembles are nested: 1 for an ensemble of plain models. ``buckets`` has the upper bounds of
    the histograms that the configuration sets, by their names.
    """

    name: str
    platform: str
    backend: str
    max_batch_size: int
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    instance_groups: tuple[InstanceGroupSpec, ...]
    batching: BatchingSpec | None = None
    queue: QueueSpec | None = None
    is_cached: bool = False
    sequence: SequenceSpec | None = None
    default_model_filename: str = ""
    graph_level: int | None = None
    decoupled: bool = False
    accelerators: tuple[AcceleratorSpec, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    warmup: tuple[WarmupSample, ...] = ()
    assembly: BatchAssembly | None = None
    max_batch_bytes: int = 0
    splits_failed: bool = True
    ensemble: EnsembleSpec | None = None
    depth: int = 0

    @property
    def instance_count(self) -> int:
        """How many instances run requests (passive ones do not)."""
        return sum(g.count for g in self.instance_groups if not g.passive)

    @property
    def has_optional_inputs(self) -> bool:
        return any(t.optional for t in self.inputs.values())
