"""How many instances a group of a configuration message asks for."""

from __future__ import annotations

from typing import Any

from naiad.config.messages import enum_name


def instance_count(group: Any) -> int:
    """The instances of a normalised group, on all of its GPUs together."""
    return int(group.count) * (max(1, len(group.gpus)) if enum_name(group, "kind") == "KIND_GPU" else 1)
