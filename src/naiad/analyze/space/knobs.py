"""What can be changed about a model, and the fields of its configuration that a change means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from naiad.perf.target.model_text import instances_of

_THREADS: Final = {
    "onnxruntime": "intra_op_thread_count",
    "pytorch": "INTRA_OP_THREAD_COUNT",
    "tensorflow": "TF_NUM_INTRA_THREADS",
    "openvino": "INFERENCE_NUM_THREADS",
}
"""The parameter with the threads of one instance, by backend."""


class Knob(StrEnum):
    """What a dimension of a space varies."""

    FORMAT = "format"
    CONFIGURATION = "configuration"
    MAX_BATCH_SIZE = "max_batch_size"
    INSTANCES = "instances"
    DELAY = "delay"
    PREFERRED = "preferred"
    THREADS = "threads"
    EXECUTION = "execution"
    BATCH_SIZE = "batch_size"
    CONCURRENCY = "concurrency"
    RATE = "request_rate"
    FILL = "fill"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that is asked about, in all of its formats, or one that such a model calls.

    Attributes:
        name: as the file names it.
        configs: the configuration of each format, as its server has completed it; the first one is the default's.
        is_composing: whether it has no load of its own.
    """

    name: str
    configs: Mapping[str, Mapping[str, Any]]
    is_composing: bool = False
    cpu_only: bool = False

    @property
    def default(self) -> str:
        """The format that is compared with."""
        return next(iter(self.configs))

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration of the default format."""
        return self.configs[self.default]

    @property
    def can_batch(self) -> bool:
        """Whether its requests can be put into batches by the server."""
        config = self.config
        special = "ensemble_scheduling" in config or "sequence_batching" in config
        return not special and int(config.get("max_batch_size", 0)) > 0

    @property
    def has_instances(self) -> bool:
        """Whether it has instances of its own."""
        return "ensemble_scheduling" not in self.config

    @property
    def has_threads(self) -> bool:
        """Whether the threads of an instance can be chosen in every format."""
        return all(config.get("backend") in _THREADS for config in self.configs.values())


@dataclass(slots=True)
class KnobValues:
    """The values of the knobs of one subject."""

    values: dict[Knob, Any] = field(default_factory=dict)

    def changes(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """The model, and the fields that change."""
        values = self.values
        model = values.get(Knob.FORMAT, subject.default)
        config = subject.configs[model]
        changes: dict[str, Any] = {}
        if Knob.MAX_BATCH_SIZE in values:
            changes["max_batch_size"] = values[Knob.MAX_BATCH_SIZE]
        batching = _batching(config, values)
        if batching is not None:
            changes["dynamic_batching"] = batching
        if Knob.INSTANCES in values:
            changes["instance_group"] = _groups(config, values[Knob.INSTANCES], cpu_only=subject.cpu_only)
        parameters: dict[str, Any] = {}
        if Knob.THREADS in values:
            parameters[_THREADS[config["backend"]]] = {"string_value": str(values[Knob.THREADS])}
        if Knob.EXECUTION in values:
            parameters["execution"] = {"string_value": values[Knob.EXECUTION]}
        if parameters:
            changes["parameters"] = parameters
        changes |= values.get(Knob.CONFIGURATION, {})
        if "max_batch_size" in changes and "dynamic_batching" in config and "dynamic_batching" not in changes:
            changes["dynamic_batching"] = _fitting(config, changes["max_batch_size"])
        return model, changes


def _batching(config: Mapping[str, Any], values: Mapping[Knob, Any]) -> dict[str, Any] | None:
    if not {Knob.MAX_BATCH_SIZE, Knob.DELAY, Knob.PREFERRED} & values.keys():
        return None
    made = dict(config.get("dynamic_batching", {}))
    if Knob.DELAY in values:
        made["max_queue_delay_microseconds"] = values[Knob.DELAY]
    if Knob.PREFERRED in values:
        made["preferred_batch_size"] = list(values[Knob.PREFERRED])
    elif Knob.MAX_BATCH_SIZE in values:
        delay = {name: made[name] for name in ("max_queue_delay_microseconds",) if name in made}
        made = {**_fitting(config, values[Knob.MAX_BATCH_SIZE]), **delay}
    return made


def _fitting(config: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The batching of a configuration with another limit.

    A preferred size above the limit is an error; the limit alone is what servers fill in.
    """
    made = dict(config.get("dynamic_batching", {}))
    sizes = made.pop("preferred_batch_size", [])
    kept = [size for size in sizes if size <= most and sizes != [int(config.get("max_batch_size", 0))]]
    return {**made, "preferred_batch_size": kept} if kept else made


def _groups(config: Mapping[str, Any], count: int, *, cpu_only: bool) -> list[dict[str, Any]]:
    groups = config.get("instance_group") or [{"kind": "KIND_AUTO"}]
    kept = [{name: value for name, value in group.items() if name != "name"} for group in groups]
    if cpu_only:
        kept = [{"kind": "KIND_CPU"}]
    return [{**group, "count": count} for group in kept]


def instance_count(config: Mapping[str, Any]) -> int:
    """How many instances the groups make."""
    return max(sum(map(instances_of, config.get("instance_group", []))), 1)


def fitting_concurrency(config: Mapping[str, Any], batch_size: int) -> int:
    """So many requests in flight keep all instances busy: two batches for each, one that runs and one that waits."""
    rows = max(int(config.get("max_batch_size", 0)), 1) if "dynamic_batching" in config else batch_size
    return max(math.ceil(2 * max(rows, batch_size) * instance_count(config) / batch_size), 1)
