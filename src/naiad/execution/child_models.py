"""Questions of a child about models: whether one is ready, and to load or unload one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from naiad.errors import NaiadError
from naiad.execution.child_calls import Models


class ModelQuestions:
    """Questions about the models of this server; none is known without ``models``."""

    def __init__(self, models: Models | None) -> None:
        self._models = models

    def ask(
        self, content: Mapping[str, Any], answer: Callable[[Any], None], fail: Callable[[NaiadError], None]
    ) -> bool:
        """Answer a question now or later; False when it is not one of these.

        Raises:
            NaiadError: the answer is that error.
        """
        if self._models is None or content.get("what") != "is_model_ready":
            return False
        answer(self._models.is_model_ready(str(content["name"]), str(content.get("version") or "")))
        return True
