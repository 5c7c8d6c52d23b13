"""``LogSettings`` and ``TraceSetting``: the settings of logs and traces, read and changed while the server runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.telemetry.logs.settings import updated

_FIELDS: Final = {bool: "bool_param", int: "uint32_param", str: "string_param"}


class LogSettingsMethod:
    """Responds to ``LogSettings``: changes the settings of the request, all or none, and returns all settings."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, request: Any) -> Any:
        """The settings after the change; errors as ``updated``."""
        log = self._engine.log
        if request.settings:
            log.change(updated(log.settings, {name: _value(found) for name, found in request.settings.items()}))
        return _message(asdict(log.settings))


def _value(setting: Any) -> bool | int | str | None:
    """The value of a setting; None if it has none."""
    name = setting.WhichOneof("parameter_choice")
    found: bool | int | str | None = getattr(setting, name) if name else None
    return found


def _message(settings: Mapping[str, bool | int | str]) -> Any:
    response = message_class("LogSettingsResponse")()
    for name, value in settings.items():
        setattr(response.settings[name], _FIELDS[type(value)], value)
    return response


class TraceSettingMethod:
    """Responds to ``TraceSetting``: changes the settings of the request, all or none, and returns all settings.

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
