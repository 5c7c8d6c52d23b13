"""Questions of a child about models: whether one is ready, and to load or unload one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from naiad.errors import NaiadError
from naiad.execution.model_directory import ModelDirectory


class ModelControlRequests:
    """Questions about the models of this server; none is known without ``models``."""

    def __init__(self, models: ModelDirectory | None) -> None:
        self._models = models

    def ask(
        self, content: Mapping[str, Any], answer: Callable[[Any], None], fail: Callable[[NaiadError], None]
    ) -> bool:
        """Answer a question now or later; False when it is not one of these.

        Raises:
            NaiadError: the answer is that error.
        """
        models = self._models
        what = content.get("what")
        if models is None or what not in ("is_model_ready", "load_model", "unload_model"):
            return False
        name = str(content["name"])

        def done(error: NaiadError | None) -> None:
            if error is None:
                answer(None)
            else:
                fail(error)

        if what == "is_model_ready":
            answer(models.is_model_ready(name, str(content.get("version") or "")))
        elif what == "load_model":
            files = {str(path): str(text) for path, text in content.get("files", {}).items()}
            models.load_model(name, content.get("config") or None, files, done)
        else:
            models.unload_model(name, bool(content.get("unload_dependents")), done)
        return True
