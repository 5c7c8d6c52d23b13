"""Instance groups: where the copies of a model run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.complete import is_ensemble
from naiad.config.instance_count import instance_count
from naiad.config.messages import enum_name
from naiad.config.problems import Violation
from naiad.gpus.usable import UsableGpus

MAX_COUNT = 4096
"""Instances of one group, and of all groups of a model: each is a thread or a process."""


def violations(config: Any, usable: UsableGpus) -> Iterator[Violation]:
    """Rules of ``instance_group`` of a normalised configuration."""
    if is_ensemble(config):
        return
    if not config.instance_group:
        yield Violation("instance_group", f"must specify one or more 'instance group's for {config.name}")
    elif all(group.passive for group in config.instance_group):
        message = f"every instance group of {config.name} is passive, so that none would run its requests: set passive"
        yield Violation("instance_group", f"{message}: false in one of them")
    counts = [instance_count(group) for group in config.instance_group]
    together = sum(counts)
    # A single group that is too large has a message of its own below.
    if together > MAX_COUNT >= max(counts, default=0):
        groups = len(config.instance_group)
        message = f"the {groups} instance groups of model {config.name} have {together} instances together, and a model"
        yield Violation("instance_group", f"{message} has at most {MAX_COUNT}")
    for index, (group, count) in enumerate(zip(config.instance_group, counts, strict=True)):
        prefix = f"instance group {group.name} of model {config.name} "
        for field, message in _group(group, usable):
            yield Violation(f"instance_group[{index}].{field}", prefix + message)
        if count > MAX_COUNT:
            message = f"{prefix}has count {count}, and a group has at most {MAX_COUNT} instances"
            yield Violation(f"instance_group[{index}].count", message)
        if group.profile and config.backend != "tensorrt":
            message = f"{prefix}specifies 'profile', which only the TensorRT platform knows"
            yield Violation(f"instance_group[{index}].profile", message)


def _group(group: Any, usable: UsableGpus) -> Iterator[tuple[str, str]]:
    kind = enum_name(group, "kind")
    if kind == "KIND_GPU":
        yield from _gpus(group, usable)
    elif group.gpus:
        yield "gpus", f"has kind {kind} but specifies one or more GPUs{_advice(kind, usable)}"


def _advice(kind: str, usable: UsableGpus) -> str:
    """What to do about the GPUs of a group that runs on none; one of KIND_AUTO has become one of KIND_CPU by now."""
    if kind != "KIND_CPU":
        return ""
    if usable.ids:
        return ": remove 'gpus' (KIND_AUTO is KIND_CPU where not all of them can be used)"
    return (
        ": remove 'gpus' (KIND_AUTO is KIND_CPU without a GPU; --gpu-fallback=cpu ignores the 'gpus' of such a group)"
    )


def _gpus(group: Any, usable: UsableGpus) -> Iterator[tuple[str, str]]:
    if not usable.ids:
        lacking = f" ({_too_old(usable)})" if usable.left_out else ""
        yield (
            "kind",
            f"has kind KIND_GPU but no GPUs are available{lacking}: write KIND_CPU, or KIND_AUTO for a GPU where there "
            "is one, or start the server with --gpu-fallback=cpu",
        )
        return
    if not group.gpus:
        yield "kind", "has kind KIND_GPU but specifies no GPUs"
    for index, gpu in enumerate(group.gpus):
        if gpu not in usable.ids:
            known = ", ".join(map(str, usable.ids))
            yield (
                f"gpus[{index}]",
                f"specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required CUDA compute "
                f"compatibility of {usable.minimum} are: {known}",
            )


def _too_old(usable: UsableGpus) -> str:
    return f"{usable.left_out} is below --min-supported-compute-capability={usable.minimum}"
