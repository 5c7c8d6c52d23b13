"""The resources that instances of a group need for each execution: ``rate_limiter`` of ``instance_group``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """``count`` units of the resource ``name``, which all devices share if ``is_global``; else each has its own."""

    name: str
    count: int
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class RateLimiterSpec:
    """The resources that an instance needs for each execution, and how its turns count.

    ``priority`` 2 gets half as many turns as 1. The configuration's 0 stands for 1.
    """

    resources: tuple[ResourceSpec, ...] = ()
    priority: int = 1


NO_LIMITS = RateLimiterSpec()


def rate_limiter(group: Any) -> RateLimiterSpec:
    """The frozen view of the section; of a resource that is named twice the last counts, as in the reference."""
    found = group.rate_limiter
    # ``global`` is a keyword of Python.
    last = {(r.name, getattr(r, "global")): r.count for r in found.resources}
    resources = tuple(ResourceSpec(name, count, shared) for (name, shared), count in last.items())
    return RateLimiterSpec(resources, max(1, found.priority))
