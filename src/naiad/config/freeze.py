"""Turns a completed, normalised and valid configuration into the ``ModelSpec`` that the server runs by."""

from __future__ import annotations

from typing import Any, Final

from naiad.config.batch_shapes import assembly, max_batch_bytes, splits_failed
from naiad.config.ensemble import ensemble_of
from naiad.config.instance_count import instance_count
from naiad.config.messages import enum_name
from naiad.config.rate_limiter import rate_limiter
from naiad.config.sequence import sequence_spec
from naiad.config.spec import (
    AcceleratorSpec,
    BatchingSpec,
    InstanceGroupSpec,
    ModelSpec,
    QueuePolicySpec,
    QueueSpec,
    TensorSpec,
)
from naiad.config.warmup import warmup_samples
from naiad.tensor.dtypes import BY_CONFIG

MAX_WAIT: Final = "priority-max-wait-microseconds"
"""A parameter of models with priorities: a request that waited this long is served before any other."""
# A thousand times as many nanoseconds still fit 64 bits.
_DIGITS: Final = 15


def freeze(config: Any) -> ModelSpec:
    """The frozen view of ``config``, a ``ModelConfig`` that ``validate`` has nothing to say about."""
    return ModelSpec(
        name=config.name,
        platform=config.platform,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        inputs={t.name: _tensor(t, config.max_batch_size) for t in config.input},
        outputs={t.name: _tensor(t, config.max_batch_size) for t in config.output},
        instance_groups=tuple(instance_group(group) for group in config.instance_group),
        batching=_batching(config),
        queue=_queue(config),
        is_cached=config.response_cache.enable,
        sequence=sequence_spec(config),
        default_model_filename=config.default_model_filename,
        graph_level=graph_level(config),
        decoupled=config.model_transaction_policy.decoupled,
        accelerators=accelerators(config),
        parameters=parameters(config),
        metric_tags={key: config.metric_tags[key] for key in sorted(config.metric_tags)},
        buckets={
            control.metric_identifier.family: tuple(control.histogram_options.buckets)
            for control in config.model_metrics.metric_control
        },
        warmup=warmup_samples(config),
        assembly=assembly(config),
        max_batch_bytes=max_batch_bytes(config),
        splits_failed=splits_failed(config),
        ensemble=ensemble_of(config),
    )


def graph_level(config: Any) -> int | None:
    """``optimization.graph.level``, None when the configuration says nothing about the graph."""
    optimization = config.optimization
    return int(optimization.graph.level) if optimization.HasField("graph") else None


def accelerators(config: Any) -> tuple[AcceleratorSpec, ...]:
    """The entries under ``optimization.execution_accelerators``, GPU accelerators first."""
    found = config.optimization.execution_accelerators
    on_gpu = [AcceleratorSpec(a.name, True, dict(a.parameters)) for a in found.gpu_execution_accelerator]
    on_cpu = [AcceleratorSpec(a.name, False, dict(a.parameters)) for a in found.cpu_execution_accelerator]
    return (*on_gpu, *on_cpu)


def parameters(config: Any) -> dict[str, str]:
    """The string values of ``parameters`` by name."""
    return {key: config.parameters[key].string_value for key in sorted(config.parameters)}


def max_wait_ns(config: Any) -> int:
    """The parameter ``priority-max-wait-microseconds`` in nanoseconds, 0 where it is not set.

    Raises:
        ValueError: it is not a whole number of microseconds; the error's text is the value.
    """
    text = config.parameters[MAX_WAIT].string_value if MAX_WAIT in config.parameters else "0"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ValueError(text)
    return int(text) * 1000


def _tensor(tensor: Any, max_batch_size: int) -> TensorSpec:
    dims = tuple(tensor.dims)
    # Only the message of an input has this field.
    is_input = "optional" in tensor.DESCRIPTOR.fields_by_name
    return TensorSpec(
        name=tensor.name,
        dtype=BY_CONFIG[enum_name(tensor, "data_type")],
        dims=dims,
        shape=(-1, *dims) if max_batch_size > 0 else dims,
        reshape=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
        optional=is_input and tensor.optional,
        allow_ragged_batch=is_input and tensor.allow_ragged_batch,
        is_shape_tensor=tensor.is_shape_tensor,
        label_filename="" if is_input else tensor.label_filename,
    )


def instance_group(group: Any) -> InstanceGroupSpec:
    """The frozen view of one instance group."""
    kind, limits = enum_name(group, "kind"), rate_limiter(group)
    return InstanceGroupSpec(
        name=group.name,
        kind=kind,
        count=instance_count(group),
        gpus=tuple(group.gpus),
        passive=group.passive,
        rate_limiter=limits,
        host_policy=group.host_policy,
        profile=tuple(group.profile),
        dla=int(group.secondary_devices[0].device_id) if group.secondary_devices else None,
    )


def _batching(config: Any) -> BatchingSpec | None:
    """None also for ``max_batch_size`` 0: without a batch dimension there is nothing to put together."""
    if not config.HasField("dynamic_batching") or config.max_batch_size == 0:
        return None
    batching = config.dynamic_batching
    return BatchingSpec(
        preferred_batch_sizes=tuple(sorted(set(batching.preferred_batch_size))),
        max_queue_delay_ns=batching.max_queue_delay_microseconds * 1000,
        preserve_ordering=batching.preserve_ordering,
    )


def _queue(config: Any) -> QueueSpec | None:
    """None where the configuration sets no limit and no priorities."""
    batching = config.dynamic_batching
    levels = batching.priority_levels
    policy = _queue_policy(batching.default_queue_policy)
    found = batching.priority_queue_policy if levels else {}
    policies = {level: _queue_policy(found[level]) for level in sorted(found)}
    # Such a model gets the plain queue, which knows neither levels nor deadlines.
    if levels <= 1 and not policies and policy == QueuePolicySpec():
        return None
    return QueueSpec(levels, batching.default_priority_level, policy, policies, max_wait_ns(config))


def _queue_policy(policy: Any) -> QueuePolicySpec:
    return QueuePolicySpec(
        max_size=policy.max_queue_size,
        timeout_ns=policy.default_timeout_microseconds * 1000,
        allows_override=policy.allow_timeout_override,
        delays=enum_name(policy, "timeout_action") == "DELAY",
    )
