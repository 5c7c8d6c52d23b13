"""Instance groups: where the copies of a model run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.complete import is_ensemble
from naiad.config.messages import enum_name
from naiad.config.problems import Violation

MIN_COMPUTE_CAPABILITY = 6.0
MAX_COUNT = 4096
"""Instances of one group, and of all groups of a model: each is a thread or a process."""


def violations(config: Any, gpu_count: int) -> Iterator[Violation]:
    """Rules of ``instance_group`` of a normalised configuration; GPUs 0 to ``gpu_count`` - 1 can be used."""
    if is_ensemble(config):
        return
    if not config.instance_group:
        yield Violation("instance_group", f"must specify one or more 'instance group's for {config.name}")
    elif all(group.passive for group in config.instance_group):
        message = f"every instance group of {config.name} is passive, so that none would run its requests: set passive"
        yield Violation("instance_group", f"{message}: false in one of them")
    together = sum(group.count for group in config.instance_group)
    # A single group that is too large has a message of its own below.
    if together > MAX_COUNT >= max((group.count for group in config.instance_group), default=0):
        groups = len(config.instance_group)
        message = f"the {groups} instance groups of model {config.name} have {together} instances together, and a model"
        yield Violation("instance_group", f"{message} has at most {MAX_COUNT}")
    for index, group in enumerate(config.instance_group):
        prefix = f"instance group {group.name} of model {config.name} "
        for field, message in _group(group, gpu_count):
            yield Violation(f"instance_group[{index}].{field}", prefix + message)
        if group.count > MAX_COUNT:
            message = f"{prefix}has count {group.count}, and a group has at most {MAX_COUNT} instances"
            yield Violation(f"instance_group[{index}].count", message)
        if group.profile and config.backend != "tensorrt":
            message = f"{prefix}specifies 'profile', which only the TensorRT platform knows"
            yield Violation(f"instance_group[{index}].profile", message)


def _group(group: Any, gpu_count: int) -> Iterator[tuple[str, str]]:
    kind = enum_name(group, "kind")
    if kind == "KIND_GPU":
        yield from _gpus(group, gpu_count)
    elif group.gpus:
        yield "gpus", f"has kind {kind} but specifies one or more GPUs"


def _gpus(group: Any, gpu_count: int) -> Iterator[tuple[str, str]]:
    if gpu_count == 0:
        yield (
            "kind",
            "has kind KIND_GPU but no GPUs are available: write KIND_CPU, or KIND_AUTO for a GPU where there is one, "
            "or start the server with --gpu-fallback=cpu",
        )
        return
    if not group.gpus:
        yield "kind", "has kind KIND_GPU but specifies no GPUs"
    for index, gpu in enumerate(group.gpus):
        if not 0 <= gpu < gpu_count:
            usable = ", ".join(str(known) for known in range(gpu_count))
            yield (
                f"gpus[{index}]",
                f"specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required CUDA compute "
                f"compatibility of {MIN_COMPUTE_CAPABILITY} are: {usable}",
            )
