"""Answers what a model asks while ``naiad check`` starts it: metrics are made and forgotten, other models refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from naiad.execution.worker.control import ControlRequests, ModelControlRequests
from naiad.execution.worker.metrics import WorkerMetrics
from naiad.telemetry.metrics.custom import CustomMetrics

_ABOUT_MODELS = ("is_model_ready", "load_model", "unload_model")


class TrialAsks:
    """The questions of one process. Used by the thread that starts it.

    Attributes:
        wanted: the other models that it asked for, in words; "" for none.
    """

    def __init__(self) -> None:
        self.wanted = ""
        self._asks = ControlRequests(ModelControlRequests(None), WorkerMetrics(CustomMetrics()))

    def ask(self, content: Mapping[str, Any], reply: Callable[[Mapping[str, Any]], None] | None) -> None:
        """Answer a question at once; None as ``reply`` for what has no answer."""
        if content.get("what") in _ABOUT_MODELS:
            self.wanted = f"the model '{content.get('name', '')}'"
        if reply is None:
            self._asks.tell(content)
        else:
            self._asks.ask(content, reply)

    def close(self) -> None:
        """Forget the metrics."""
        self._asks.close()
