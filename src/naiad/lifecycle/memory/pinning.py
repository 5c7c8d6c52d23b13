"""Which models must stay now, and what waits for what: put together from those who know a part of it each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from naiad.lifecycle.ensembles.dependencies import Ensembles
    from naiad.lifecycle.memory.load_on_demand import LoadOnDemand
    from naiad.lifecycle.state.operations import Operations


class Pinning:
    """As ``memory.Stays``. Used on the event loop only.

    Args:
        operations: the loads and unloads under way.
        ensembles: what ensembles are made of, and which of them are being loaded.
        demand: the requests that wait for models; None where none do.
    """

    def __init__(self, operations: Operations, ensembles: Ensembles, demand: LoadOnDemand | None) -> None:
        self._operations = operations
        self._ensembles = ensembles
        self._demand = demand

    def is_needed(self, name: str) -> bool:
        """For requests that wait, or for an ensemble that is being loaded or has such requests."""
        if self._ensembles.together.holds(name):
            return True
        demand = self._demand
        if demand is None:
            return False
        return demand.holds(name) or any(
            name in self._ensembles.members_within(ensemble) for ensemble in demand.asked_for
        )

    def is_under_way(self, name: str) -> bool:
        """An operation on a model runs or waits."""
        return self._operations.concern(name)

    def is_awaited(self, name: str) -> bool:
        """The load of another model waits for the one of this, or will: the ensemble that it is a member of."""
        return self._operations.is_awaited(name) or self._ensembles.together.holds(name)

    def members_within(self, name: str) -> set[str]:
        """All models that an ensemble is made of; none for other models."""
        return self._ensembles.members_within(name)

    def called_by(self, name: str) -> list[str]:
        """The models that calls of a model wait for."""
        return [] if self._demand is None else self._demand.called_by(name)

    def waits_for(self, name: str, other: str) -> bool:
        """For members of the same ensemble, for its turn, for its calls, or for operations that it asked for."""
        if self._ensembles.together.waits_for(name, other):
            return True
        called = self.called_by(name)
        return other in called or any(self._operations.waits_for(one, other) for one in (name, *called))
