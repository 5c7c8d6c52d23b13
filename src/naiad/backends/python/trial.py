"""Control requests of a model while ``naiad check`` starts it: metrics are made and dropped, other models refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from naiad.execution.worker.control import ControlRequests, ModelControlRequests
from naiad.execution.worker.metrics import WorkerMetrics
from naiad.telemetry.metrics.custom import CustomMetrics

_ABOUT_MODELS = ("is_model_ready", "load_model", "unload_model")


class TrialRequests:
    """The control requests of one worker. Used by the thread that starts it.

    Attributes:
        wanted: the other model that it requested last, in words; "" for none.
    """

    def __init__(self) -> None:
        self.wanted = ""
        self._requests = ControlRequests(ModelControlRequests(None), WorkerMetrics(CustomMetrics()))

    def handle(self, content: Mapping[str, Any], reply: Callable[[Mapping[str, Any]], None] | None) -> None:
        """Reply to a control request at once; ``reply`` is None for a notification."""
        if content.get("what") in _ABOUT_MODELS:
            self.wanted = f"the model '{content.get('name', '')}'"
        if reply is None:
            self._requests.notify(content)
        else:
            self._requests.handle(content, reply)

    def close(self) -> None:
        """Forget the metrics."""
        self._requests.close()
