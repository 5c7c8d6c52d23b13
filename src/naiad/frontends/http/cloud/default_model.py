"""The model that serves predictions of Vertex AI: named by an option, or the only one that is loaded."""

from __future__ import annotations

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.lifecycle.memory.load_on_demand import ModelNotLoadedError


class DefaultModel:
    """Which model that is.

    Attributes:
        name: the model; "" until ``choose`` was called, and where there is none.
    """

    def __init__(self, engine: Engine, wanted: str) -> None:
        self.name = ""
        self._engine = engine
        self._wanted = wanted

    def choose(self) -> str:
        """Choose it among the models that are loaded by now; returns why that is impossible, in the reference's words.

        "" stands for no problem.
        """
        if self._wanted:
            if not self._is_loaded():
                return f"Expect the default model '{self._wanted}' is loaded"
            self.name = self._wanted
            return ""
        names = {row["name"] for row in self._engine.index(ready_only=True)}
        if len(names) != 1:
            return "Expect the model repository contains only a single model if default model is not specified"
        (self.name,) = names
        return ""

    def _is_loaded(self) -> bool:
        try:
            self._engine.find(self._wanted, None)
        except ModelNotLoadedError:
            # The first prediction loads it.
            return True
        except NaiadError:
            # It is missing or broken, or several repositories have a model of that name.
            return False
        return True
