"""What may change about a loaded model, and the fields of its configuration that a change means."""

from __future__ import annotations

from typing import Any

from naiad.config.known_parameters.threads import THREADS
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.options.latency_objective import LatencyObjective
from naiad.scheduling.tuning.setup import SetupLimits, TunedSetup


def why_not_tuned(spec: ModelSpec) -> str:
    """Why a model cannot be tuned; "" for one that can."""
    if spec.ensemble is not None:
        return "an ensemble has no instances: its members are tuned"
    if spec.sequence is not None:
        return "sequences stay with their instances"
    if spec.decoupled:
        return "a request of a decoupled model has any number of responses"
    return ""


def limits_of(spec: ModelSpec, objective: LatencyObjective, cores: int) -> SetupLimits:
    """The bounds of a model's setups. Never more rows than ``max_batch_size``."""
    group = tuned_group(spec)
    count = spec.instance_count if group is None else group.count
    moves_threads = group is not None and _moves_threads(spec, group)
    batches = spec.batching is not None and spec.max_batch_size > 1
    delay_us = spec.batching.max_queue_delay_ns // 1_000 if spec.batching is not None else 0
    threads = max(1, cores // count) if moves_threads else 0
    configured = TunedSetup(count, threads, max(spec.max_batch_size, 1), delay_us)
    most = objective.max_instances or max(count, cores)
    return SetupLimits(configured, max(most, 1), cores, group is not None, moves_threads, batches)


def tuned_group(spec: ModelSpec) -> InstanceGroupSpec | None:
    """The group whose instances may become more or fewer; None where they are spread over groups or devices."""
    if len(spec.instance_groups) != 1:
        return None
    (group,) = spec.instance_groups
    return None if group.passive or len(group.gpus) > 1 else group


def _moves_threads(spec: ModelSpec, group: InstanceGroupSpec) -> bool:
    """Whether the threads of an instance are left to the server."""
    parameter = THREADS.get(spec.backend)
    is_open = parameter is not None and spec.parameters.get(parameter, "0") == "0"
    return is_open and group.kind == "KIND_CPU" and not group.host_policy


def give_instances(config: Any, completed: Any, setup: TunedSetup, backend: str) -> None:
    """Write the instances of a setup into a configuration message.

    Args:
        config: as written; its fields that say nothing of instances stay.
        completed: the same configuration as the server completed it.
    """
    if not config.instance_group:
        config.instance_group.extend(completed.instance_group)
    config.instance_group[0].count = setup.instances
    if setup.threads:
        config.parameters[THREADS[backend]].string_value = str(setup.threads)
