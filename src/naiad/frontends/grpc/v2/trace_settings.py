"""``TraceSetting``: what is traced, read and changed while the server runs."""

from __future__ import annotations

from typing import Any

from naiad.config.messages import message_class
from naiad.engine.engine import Engine


class TraceSettingMethod:
    """Answers ``TraceSetting``: changes what the request holds, all or none, and gives back all settings.

    A setting without a value is cleared.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, request: Any) -> Any:
        """The settings after the change; errors as ``Engine.change_trace_settings``."""
        changes = {name: list(found.value) or None for name, found in request.settings.items()}
        response = message_class("TraceSettingResponse")()
        for name, value in self._engine.change_trace_settings(request.model_name, changes).items():
            response.settings[name].value.extend([value] if isinstance(value, str) else value)
        return response
