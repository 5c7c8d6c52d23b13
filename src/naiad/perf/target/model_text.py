"""What servers say of a model, read into a ``ModelDescription`` and ``ServerParts``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from naiad.perf.results import ServerParts
from naiad.perf.steps import ModelDescription, TensorDescription
from naiad.perf.target.protocol import TargetError

Describe = Callable[[str, str], ModelDescription]
"""Asks the server for the model of a name and a version; raises ``TargetError`` when it has none."""


def read_description(metadata: Mapping[str, Any], config: Mapping[str, Any], describe: Describe) -> ModelDescription:
    """A model from its metadata and its configuration, which is empty where the server has none.

    Args:
        describe: gives the description of a model of an ensemble's step by its name and version.
    """
    max_batch_size = int(config.get("max_batch_size", 0))
    configured = {entry["name"]: entry for entry in config.get("input", [])}
    versions = sorted(map(str, metadata.get("versions", [])), key=lambda v: (len(v), v))
    return ModelDescription(
        name=str(metadata["name"]),
        version=versions[-1] if versions else "",
        inputs=tuple(
            _tensor(entry, configured.get(entry["name"], {}), max_batch_size) for entry in metadata.get("inputs", [])
        ),
        outputs=tuple(_tensor(entry, {}, max_batch_size) for entry in metadata.get("outputs", [])),
        max_batch_size=max_batch_size,
        is_sequence="sequence_batching" in config or _is_any_sequence(config, describe),
        is_decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        has_response_cache=bool(config.get("response_cache", {}).get("enable", False)),
        composing=_composing(config, describe),
        instances=sum(map(instances_of, config.get("instance_group", []))),
    )


def instances_of(group: Mapping[str, Any]) -> int:
    """How many instances a group of a configuration makes: its count, on each of its devices."""
    if group.get("passive"):
        return 0
    return max(int(group.get("count", 1)), 1) * max(len(group.get("gpus", [])), 1)


def _is_any_sequence(config: Mapping[str, Any], describe: Describe) -> bool:
    return any(model.is_sequence for model in _composing(config, describe))


def _composing(config: Mapping[str, Any], describe: Describe) -> tuple[ModelDescription, ...]:
    found: dict[tuple[str, str], ModelDescription] = {}
    for step in config.get("ensemble_scheduling", {}).get("step", []):
        version = int(step.get("model_version", -1))
        key = (str(step["model_name"]), "" if version < 0 else str(version))
        if key not in found:
            found[key] = _described(*key, describe)
    return tuple(found.values())


def _described(name: str, version: str, describe: Describe) -> ModelDescription:
    """The model of a step, with its name alone where the server does not show it."""
    try:
        return describe(name, version)
    except TargetError:
        return ModelDescription(name, version, (), ())


def with_composing(model: ModelDescription, given: Sequence[tuple[str, str]], describe: Describe) -> ModelDescription:
    """The model with those that it calls by itself, which only the user knows by name and version.

    Raises:
        TargetError: the server has no such model.
    """
    known = {step.name for step in model.composing}
    called = [describe(name, version) for name, version in given if name not in known]
    return replace(model, composing=(*model.composing, *called))


def _tensor(entry: Mapping[str, Any], configured: Mapping[str, Any], max_batch_size: int) -> TensorDescription:
    shape = tuple(int(size) for size in entry.get("shape", []))
    is_shape_tensor = bool(configured.get("is_shape_tensor", False))
    if max_batch_size and not is_shape_tensor:
        shape = shape[1:]
    return TensorDescription(
        name=str(entry["name"]),
        datatype=str(entry["datatype"]),
        shape=shape,
        is_optional=bool(configured.get("optional", False)),
        is_shape_tensor=is_shape_tensor,
    )


def read_parts(statistics: Mapping[str, Any], model: ModelDescription) -> ServerParts | None:
    """The counts of a model and those of an ensemble's steps; None when the server has none of it.

    Args:
        statistics: the response to the request for the statistics of all models.
    """
    rows = statistics.get("model_stats", [])
    return _parts(rows, model)


def _parts(rows: list[Mapping[str, Any]], model: ModelDescription) -> ServerParts | None:
    found = [row for row in rows if row.get("name") == model.name]
    matching = [row for row in found if str(row.get("version", "")) == model.version] or found
    if not matching:
        return None
    row = matching[-1]
    stats = row.get("inference_stats", {})
    parts = ServerParts(
        model=model.name,
        version=str(row.get("version", "")),
        inferences=int(row.get("inference_count", 0)),
        executions=int(row.get("execution_count", 0)),
        successes=_count(stats, "success"),
        failures=_count(stats, "fail"),
        request_ns=_ns(stats, "success"),
        queue_ns=_ns(stats, "queue"),
        compute_input_ns=_ns(stats, "compute_input"),
        compute_infer_ns=_ns(stats, "compute_infer"),
        compute_output_ns=_ns(stats, "compute_output"),
        cache_hits=_count(stats, "cache_hit"),
        cache_hit_ns=_ns(stats, "cache_hit"),
        cache_misses=_count(stats, "cache_miss"),
        cache_miss_ns=_ns(stats, "cache_miss"),
    )
    steps = [_parts(rows, step) for step in model.composing]
    parts.composing = [step for step in steps if step is not None]
    return parts


def _count(stats: Mapping[str, Any], name: str) -> int:
    return int(stats.get(name, {}).get("count", 0))


def _ns(stats: Mapping[str, Any], name: str) -> int:
    return int(stats.get(name, {}).get("ns", 0))
