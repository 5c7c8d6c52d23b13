"""Who answers the requests of a model, as those see it who read and submit them."""

from __future__ import annotations

from typing import Protocol

from naiad.config.spec import ModelSpec
from naiad.request import Recipient


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
