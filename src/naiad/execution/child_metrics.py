"""The metrics of one child: its own numbers for families and metrics that the whole server shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from naiad.errors import NaiadError


class ChildMetrics:
    """Metrics that one child made; those it has not deleted go with it."""

    def ask(
        self, content: Mapping[str, Any], answer: Callable[[Any], None], fail: Callable[[NaiadError], None]
    ) -> bool:
        """Answer a question now or later; False when it is not about metrics.

        Raises:
            NaiadError: the answer is that error.
        """
        return False

    def tell(self, content: Mapping[str, Any]) -> None:
        """Change a metric or delete one."""

    def close(self) -> None:
        """Delete all that is left."""
