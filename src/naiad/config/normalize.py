"""Fills in every default that a configuration leaves open, so that later steps find every field set.

Source: configuration reference, sections "Fields" and "Normalisation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from naiad.config.complete import PYTHON_RUNTIME, is_ensemble
from naiad.config.messages import enum_type
from naiad.config.problems import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEFAULT_SEQUENCE_IDLE_US = 1_000_000
# The reference runs two instances of these on the CPU unless the configuration says otherwise.
_TWO_CPU_INSTANCES = frozenset({"onnxruntime", "tensorflow"})
_CPU_BACKENDS = frozenset({"identity", "python"})
"""Backends whose instances run on the CPU unless the configuration says otherwise."""

_PROCESSOR_ONLY = frozenset({"fil", "keras"})
"""Backends for which KIND_AUTO, which configurations of the reference have for forests, is the CPU."""


def normalize(config: Any, gpu_count: int = 0) -> None:
    """Fill the defaults of ``config`` in place. ``gpu_count`` GPUs, numbered from 0, can be used."""
    _version_policy(config)
    _schedulers(config)
    if is_ensemble(config):
        return
    _pinned_memory(config)
    _instance_groups(config, gpu_count)


def move_to_processor(config: Any) -> Iterator[Violation]:
    """Turn instance groups of KIND_GPU into KIND_CPU and drop GPU accelerators; yields what was changed and where."""
    kinds = enum_type("ModelInstanceGroup.Kind")
    for index, group in enumerate(config.instance_group):
        if group.kind != kinds.Value("KIND_GPU"):
            continue
        group.kind = kinds.Value("KIND_CPU")
        del group.gpus[:]
        name = f"{group.name or index} of model {config.name}"
        message = f"instance group {name} has kind KIND_GPU, and runs as KIND_CPU because of --gpu-fallback=cpu"
        yield Violation(f"instance_group[{index}].kind", message)
    accelerators = config.optimization.execution_accelerators
    for index, accelerator in enumerate(accelerators.gpu_execution_accelerator):
        path = f"optimization.execution_accelerators.gpu_execution_accelerator[{index}]"
        yield Violation(
            path, f"accelerator '{accelerator.name}' of model {config.name} is left out because of --gpu-fallback=cpu"
        )
    if accelerators.gpu_execution_accelerator:
        del accelerators.gpu_execution_accelerator[:]


def _version_policy(config: Any) -> None:
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice is None or (choice == "latest" and policy.latest.num_versions == 0):
        policy.latest.num_versions = 1


def _schedulers(config: Any) -> None:
    size = config.max_batch_size
    if config.HasField("dynamic_batching"):
        _preferred(config.dynamic_batching, size)
    if config.HasField("sequence_batching"):
        sequence = config.sequence_batching
        sequence.max_sequence_idle_microseconds = sequence.max_sequence_idle_microseconds or DEFAULT_SEQUENCE_IDLE_US
        if sequence.HasField("oldest"):
            _preferred(sequence.oldest, size)


def _preferred(batcher: Any, max_batch_size: int) -> None:
    if not batcher.preferred_batch_size and max_batch_size > 0:
        batcher.preferred_batch_size.append(max_batch_size)


def _pinned_memory(config: Any) -> None:
    optimization = config.optimization
    for name in ("input_pinned_memory", "output_pinned_memory"):
        if not optimization.HasField(name):
            getattr(optimization, name).enable = True


def _instance_groups(config: Any, gpu_count: int) -> None:
    if not config.instance_group:
        config.instance_group.add(name=config.name)
        if config.backend in _CPU_BACKENDS or config.runtime == PYTHON_RUNTIME:
            config.instance_group[0].kind = enum_type("ModelInstanceGroup.Kind").Value("KIND_CPU")
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        _resolve_kind(group, 0 if config.backend in _PROCESSOR_ONLY else gpu_count)
        kinds = enum_type("ModelInstanceGroup.Kind")
        if group.kind == kinds.Value("KIND_GPU") and not group.gpus:
            group.gpus.extend(range(gpu_count))
        if group.count < 1:
            on_cpu = group.kind == kinds.Value("KIND_CPU")
            group.count = 2 if on_cpu and config.backend in _TWO_CPU_INSTANCES else 1


def _resolve_kind(group: Any, gpu_count: int) -> None:
    """KIND_AUTO is the GPU when every listed one can be used (any one, when none is listed), else the CPU."""
    kinds = enum_type("ModelInstanceGroup.Kind")
    if group.kind == kinds.Value("KIND_AUTO"):
        usable = gpu_count > 0 and _all_usable(group.gpus, gpu_count)
        group.kind = kinds.Value("KIND_GPU" if usable else "KIND_CPU")


def _all_usable(gpus: Iterable[int], gpu_count: int) -> bool:
    return all(0 <= gpu < gpu_count for gpu in gpus)
