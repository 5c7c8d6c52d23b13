"""The part of the engine that reading and submitting inference requests needs.

``Engine`` has it, and so has the stand-in for the engine in a front-end process (``server/fronts/remote_engine.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from naiad.execution.model.interface import ServingModel
    from naiad.lifecycle.memory.load_on_demand import LoadOnDemand
    from naiad.scheduling.admission import RequestBudget
    from naiad.shared_memory.registry import RegionRegistry


class ModelFollower(Protocol):
    """A cache of facts about models."""

    def forget(self, model: ServingModel) -> None:
        """Drop a model that is being unloaded."""


class InferenceEngine(Protocol):
    """Finds models for requests.

    Attributes:
        budget: bounds the open requests and their bytes.
        regions: the clients' shared memory.
        demand: loads models for requests; None when requests do not load models.
    """

    budget: RequestBudget
    regions: RegionRegistry
    demand: LoadOnDemand | None

    def find(self, name: str, version: str | None) -> ServingModel:
        """The model for a name and a version or alias; errors as ``Engine.find``."""

    def follow(self, follower: ModelFollower) -> None:
        """Notify ``follower`` of each model that is unloaded from now on."""
