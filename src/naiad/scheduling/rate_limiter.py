"""Which instance runs next when the instances of all models share resources. Pure decisions.

Source: ``rate_limiter`` of ``instance_group`` and the rate limiter of the reference (``--rate-limit=execution_count``).

An instance needs all of its resources at once, for each execution. The instance with the smallest score comes first; a
turn adds the priority of an instance to its score, so that priority 2 gets half the turns of priority 1. Two rules
prevent starvation:

- an instance that waits reserves its resources against the instances behind it, and against no others;
- an instance that is new or was idle continues from the score of the last turn: it does not catch up on turns that it
  did not need.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Final, NamedTuple

from naiad.errors import ModelLoadError

GLOBAL: Final = None
"""The device of a resource that all devices share."""


class Resource(NamedTuple):
    """A resource of one device, or of all together."""

    name: str
    device: int | None


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """The amount of the resource ``name``, on one device or, with None, on each. Names ignore case."""

    name: str
    count: int
    device: int | None = None


class _State(Enum):
    RESTING = auto()
    WAITING = auto()
    RUNNING = auto()


class Contender:
    """An instance as the limiter sees it. ``needs`` are the amounts of resources that one execution takes."""

    __slots__ = ("_number", "_score", "_state", "needs", "priority")

    def __init__(self, needs: Mapping[Resource, int], priority: int = 1) -> None:
        self.needs = tuple(needs.items())
        self.priority = priority
        # As after a turn together with an instance of priority 1, which then comes first, as in the reference.
        self._score = priority - 1
        self._number = 0
        self._state = _State.RESTING

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its turn."""
        return self._state is _State.WAITING

    @property
    def is_running(self) -> bool:
        """Whether it has its resources."""
        return self._state is _State.RUNNING


class RateLimiter:
    """Gives turns to contenders, as far as resources are free.

    ``limits`` are the amounts of all resources; a resource that is not in them has none. Without limits, the amount of
    a resource is the most that one contender needs.
    """

    def __init__(self, limits: Sequence[ResourceLimit] = ()) -> None:
        self._limits = limits
        self._members: set[Contender] = set()
        self._available: dict[Resource, int] = {}
        self._used: Counter[Resource] = Counter()
        # In the order of their turns: score, then priority, then number.
        self._waiting: list[Contender] = []
        self._numbers = count(1)
        # The score of the last turn, from which new and idle instances continue.
        self._clock = 0

    @property
    def available(self) -> Mapping[Resource, int]:
        """The amount of each resource that any contender needs."""
        return self._available

    @property
    def used(self) -> Mapping[Resource, int]:
        """The amounts that running contenders have."""
        return {resource: n for resource, n in self._used.items() if n}

    def join(self, newcomers: Sequence[Contender]) -> None:
        """Add contenders, all or none.

        Raises:
            ModelLoadError: a contender needs more than its limit, or a resource is global for one and of a device for
                another.
        """
        members = self._members.union(newcomers)
        # Counted first: its error leaves the limiter as it was.
        self._available = self._counted(members)
        self._members = members

    def leave(self, contender: Contender) -> None:
        """Remove a contender, whatever its state."""
        if contender not in self._members:
            return
        self.withdraw(contender)
        self.release(contender)
        self._members.discard(contender)
        # Without limits the amounts are the largest needs, which may have been its own.
        if contender.needs:
            self._available = self._counted(self._members)

    def enqueue(self, contender: Contender) -> None:
        """Queue a contender that could run. Does nothing when it waits already, runs, or has left."""
        if contender._state is not _State.RESTING or contender not in self._members:
            return
        contender._state = _State.WAITING
        contender._score = max(contender._score, self._clock)
        contender._number = next(self._numbers)
        insort(self._waiting, contender, key=_order)

    def withdraw(self, contender: Contender) -> None:
        """Take a contender that has nothing to run out of the queue."""
        if contender._state is _State.WAITING:
            contender._state = _State.RESTING
            self._waiting.remove(contender)

    def next(self) -> Contender | None:
        """Give its resources to the next contender and return it; None when none can run."""
        reserved: set[Resource] = set()
        for index, contender in enumerate(self._waiting):
            if self._fits(contender, reserved):
                del self._waiting[index]
                self._start(contender)
                return contender
            # Reserved for it, so that smaller needs behind it cannot starve it.
            reserved.update(resource for resource, _ in contender.needs)
        return None

    def release(self, contender: Contender, was_used: bool = True) -> None:
        """Free the resources of a contender that ran; a turn that was not used does not count."""
        if contender._state is not _State.RUNNING:
            return
        contender._state = _State.RESTING
        self._used.subtract(dict(contender.needs))
        if not was_used:
            contender._score -= contender.priority

    def _start(self, contender: Contender) -> None:
        contender._state = _State.RUNNING
        self._used.update(dict(contender.needs))
        self._clock = max(self._clock, contender._score)
        contender._score += contender.priority

    def _fits(self, contender: Contender, reserved: set[Resource]) -> bool:
        used, available = self._used, self._available
        # A need of 0 takes nothing from contenders that wait.
        return all(used[r] + n <= available[r] and not (n and r in reserved) for r, n in contender.needs)

    def _counted(self, members: set[Contender]) -> dict[Resource, int]:
        most: dict[Resource, int] = {}
        for contender in members:
            for resource, n in contender.needs:
                most[resource] = max(n, most.get(resource, 0))
        shared = {resource.name for resource in most if resource.device is GLOBAL}
        for resource in most:
            if resource.device is not GLOBAL and resource.name in shared:
                raise ModelLoadError(
                    f'Resource "{resource.name}" is present as both global and device-specific resource in the model '
                    "configuration."
                )
        return {resource: self._limit(resource, n) for resource, n in most.items()} if self._limits else most

    def _limit(self, resource: Resource, needed: int) -> int:
        name, device = resource.name.lower(), resource.device
        fitting = (x.count for x in self._limits if x.name.lower() == name and _is_for(x.device, device))
        found = max(fitting, default=0)
        if found < needed:
            raise ModelLoadError(
                f'Resource count for "{resource.name}" is limited to {found} which will prevent scheduling of one or '
                f"more model instances, the minimum required count is {needed}"
            )
        return found


def _is_for(limited: int | None, device: int | None) -> bool:
    return device is GLOBAL or limited is None or limited == device


def _order(contender: Contender) -> tuple[int, int, int]:
    return contender._score, contender.priority, contender._number
