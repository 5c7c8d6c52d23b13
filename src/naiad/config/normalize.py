"""Fills in every default that a configuration leaves open, so that later steps find every field set.

Source: configuration reference, sections "Fields" and "Normalisation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from naiad.config.complete import PYTHON_RUNTIME, is_ensemble
from naiad.config.messages import enum_type
from naiad.config.problems import Violation
from naiad.gpus.usable import NO_GPUS, UsableGpus

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_SEQUENCE_IDLE_US = 1_000_000
# The reference runs two instances of these on the CPU unless the configuration says otherwise.
_TWO_CPU_INSTANCES = frozenset({"onnxruntime", "tensorflow"})
_CPU_BACKENDS = frozenset({"identity", "python"})
"""Backends whose instances run on the CPU unless the configuration says otherwise."""

_FRAMEWORKS_ON_GPUS = frozenset({"onnxruntime", "pytorch", "tensorflow", "tensorrt"})
"""Backends of Naiad whose instances may run on a GPU; Python models decide for themselves."""
_TENSORRT = "tensorrt"


def normalize(config: Any, gpus: UsableGpus = NO_GPUS) -> None:
    """Fill the defaults of ``config`` in place, the GPUs of groups that name none included."""
    _version_policy(config)
    _schedulers(config)
    if is_ensemble(config):
        return
    _pinned_memory(config)
    _instance_groups(config, gpus)


def move_to_processor(config: Any) -> Iterator[Violation]:
    """Turn instance groups on GPUs into KIND_CPU and drop GPU accelerators; yields what was changed and where."""
    kinds = enum_type("ModelInstanceGroup.Kind")
    for index, group in enumerate(config.instance_group):
        if group.kind == kinds.Value("KIND_GPU"):
            field, found = "kind", "has kind KIND_GPU"
        elif group.kind == kinds.Value("KIND_AUTO") and group.gpus:
            field, found = "gpus", "specifies one or more GPUs"
        else:
            continue
        group.kind = kinds.Value("KIND_CPU")
        del group.gpus[:]
        name = f"{group.name or index} of model {config.name}"
        message = f"instance group {name} {found}, and runs as KIND_CPU because of --gpu-fallback=cpu"
        yield Violation(f"instance_group[{index}].{field}", message)
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


def may_use_gpus(config: Any) -> bool:
    """Whether an instance may run on a GPU, so that it has to be known which there are."""
    kinds = enum_type("ModelInstanceGroup.Kind")
    if any(group.kind == kinds.Value("KIND_GPU") for group in config.instance_group):
        return True
    if config.backend not in _FRAMEWORKS_ON_GPUS and not _is_python(config):
        return False
    if not config.instance_group:
        return not _is_on_processor(config)
    return any(group.kind == kinds.Value("KIND_AUTO") for group in config.instance_group)


def choose_gpus(config: Any, gpus: UsableGpus) -> None:
    """Turn KIND_AUTO into KIND_GPU where every listed GPU can be used (any one, when none is listed).

    A configuration without a group gets one, and a group of KIND_GPU without a list all GPUs. Called for a framework
    that runs on these GPUs, before ``normalize``.
    """
    kinds = enum_type("ModelInstanceGroup.Kind")
    if not config.instance_group:
        _add_group(config)
    for group in config.instance_group:
        if group.kind == kinds.Value("KIND_AUTO") and gpus.ids and set(group.gpus) <= set(gpus.ids):
            group.kind = kinds.Value("KIND_GPU")
        if group.kind == kinds.Value("KIND_GPU") and not group.gpus:
            group.gpus.extend(gpus.ids)


def _instance_groups(config: Any, gpus: UsableGpus) -> None:
    kinds = enum_type("ModelInstanceGroup.Kind")
    if not config.instance_group:
        _add_group(config)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == kinds.Value("KIND_AUTO"):
            # ``choose_gpus`` has left it: the plan of an engine has no other place, and a rule says what it lacks.
            group.kind = kinds.Value("KIND_GPU" if config.backend == _TENSORRT else "KIND_CPU")
        if group.kind == kinds.Value("KIND_GPU") and not group.gpus:
            group.gpus.extend(gpus.ids)
        if group.count < 1:
            on_cpu = group.kind == kinds.Value("KIND_CPU")
            group.count = 2 if on_cpu and config.backend in _TWO_CPU_INSTANCES else 1


def _add_group(config: Any) -> None:
    config.instance_group.add(name=config.name)
    if _is_on_processor(config):
        config.instance_group[0].kind = enum_type("ModelInstanceGroup.Kind").Value("KIND_CPU")


def _is_on_processor(config: Any) -> bool:
    """Whether the instances of a configuration without groups are on the processor wherever there are GPUs."""
    return config.backend in _CPU_BACKENDS or config.runtime == PYTHON_RUNTIME


def _is_python(config: Any) -> bool:
    return bool(config.backend == "python" or config.runtime == PYTHON_RUNTIME)
