"""Warnings of outputs that a model returns and its configuration does not have. They are left out of responses."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping, Sequence

from ..api.tensor import Tensor

# Bounds the names: a model may invent another one for each response.
_MOST = 64


class UnexpectedOutputs:
    """Warns of each unexpected output once. Most often its name is misspelt."""

    def __init__(self, log: Callable[[str, str], object]) -> None:
        self._log = log
        self._outputs: list[str] = []
        self._known: set[str] = set()

    def compare_with(self, args: Mapping[str, Any]) -> None:
        """Take the outputs from the configuration that the model's ``initialize`` gets."""
        config = json.loads(args.get("model_config") or "{}")
        self._outputs = [output["name"] for output in config.get("output", ())]
        self._known = set(self._outputs)

    def look_at(self, tensors: Sequence[Tensor]) -> None:
        """Look at the outputs of a response. Called when not all of them are wanted."""
        for tensor in tensors:
            if tensor._name not in self._known and self._outputs and len(self._known) - len(self._outputs) < _MOST:
                self._known.add(tensor._name)
                expected = ", ".join(f"'{name}'" for name in self._outputs)
                self._log(
                    "WARNING",
                    f"returned output '{tensor._name}', which its configuration does not have: it is left out of the "
                    f"answer; expected: {expected}",
                )
