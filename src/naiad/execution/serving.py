"""Who answers the requests of a model, as those see it who read and submit them."""

from __future__ import annotations

from typing import Protocol

from naiad.config.spec import ModelSpec
from naiad.request import InferRequest, Recipient
from naiad.scheduling.budget import RequestBudget


class ServingModel(Recipient, Protocol):
    """A loaded version, or one of several that share the requests of a model (``lifecycle/routed.py``).

    Whoever remembers something of it knows it by identity, and is told when it goes.
    """

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def problem(self) -> str:
        """What keeps it from working, "" when nothing does."""

    @property
    def budget(self) -> RequestBudget:
        """How many requests there may be."""

    @property
    def regions_from(self) -> int:
        """Inputs of so many bytes and more may be a ``RegionTensor``, as in ``LoadedModel``."""

    def check_room(self, size: int) -> None:
        """As ``LoadedModel.check_room``."""

    def expect(self) -> None:
        """As ``LoadedModel.expect``."""

    def submit_expected(self, request: InferRequest) -> None:
        """As ``LoadedModel.submit_expected``."""

    def expect_no_more(self) -> None:
        """As ``LoadedModel.expect_no_more``."""
