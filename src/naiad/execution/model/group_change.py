"""Other instance groups for a model that serves: which instances stay, which go, and which are to come."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from naiad.config.spec import InstanceGroupSpec

_I = TypeVar("_I")


@dataclass(frozen=True, slots=True)
class GroupChange(Generic[_I]):
    """A change under way. Instances that stay are not touched, whatever they are called.

    Attributes:
        coming: instances that are made beside the others, and serve when all of them are there.
        leaving: instances that no group needs any more.
    """

    coming: Sequence[_I]
    leaving: Sequence[_I]


@dataclass(frozen=True, slots=True)
class InstancePosition:
    """Where an instance belongs: the ``index``-th of its group."""

    group: InstanceGroupSpec
    index: int

    @property
    def name(self) -> str:
        """What the instance is called."""
        return f"{self.group.name}_{self.index}"


def regroup(
    present: Mapping[_I, InstancePosition], groups: Sequence[InstanceGroupSpec], taken: Iterable[str] = ()
) -> tuple[list[_I], list[InstancePosition]]:
    """The instances that leave, and the places of new ones, so that ``groups`` are complete.

    An instance stays where any group asks for one of its kind on its devices; the oldest instances stay first. No new
    one is called by a name of ``present`` or ``taken``.
    """
    free: defaultdict[object, list[_I]] = defaultdict(list)
    for instance, place in present.items():
        free[_kind(place.group)].append(instance)
    names = {*taken, *(place.name for place in present.values())}
    coming: list[InstancePosition] = []
    for group in groups:
        uniform = free[_kind(group)]
        staying = min(group.count, len(uniform))
        del uniform[:staying]
        coming += _places(group, group.count - staying, names)
    return [instance for uniform in free.values() for instance in uniform], coming


def _kind(group: InstanceGroupSpec) -> object:
    # An instance is created for these, and cannot stand in for one of a group that differs in them.
    places = group.kind, group.gpus, group.profile, group.dla, group.host_policy
    return places, group.passive, group.rate_limiter


def _places(group: InstanceGroupSpec, count: int, names: set[str]) -> list[InstancePosition]:
    """``count`` places in a group, under names that are not among ``names`` and are added to them."""
    free = (place for index in itertools.count() if (place := InstancePosition(group, index)).name not in names)
    found = list(itertools.islice(free, count))
    names.update(place.name for place in found)
    return found
