"""The result of a case: named figures, each with the bound that the project promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class CaseError(Exception):
    """A case could not be measured: a wrong answer, a lost request, a server that does not start."""


class CaseSkippedError(Exception):
    """A case needs something that is not installed; the text names it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A promise about a figure: ``sense`` is how the figure must compare with ``limit``."""

    sense: Literal[">=", "<=", "<", "="]
    limit: float

    def holds(self, value: float) -> bool:
        """Whether ``value`` keeps the promise."""
        match self.sense:
            case ">=":
                return value >= self.limit
            case "<=":
                return value <= self.limit
            case "<":
                return value < self.limit
            case "=":
                return value == self.limit

    def __str__(self) -> str:
        return f"{self.sense} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. ``note`` explains what the name cannot; a figure without a bound only informs."""

    name: str
    value: float
    unit: str
    bound: Bound | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``ok``, ``missed``, or nothing where there is no bound."""
        if self.bound is None:
            return ""
        return "ok" if self.bound.holds(self.value) else "missed"
