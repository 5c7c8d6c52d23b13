"""``LogSettings``: what is logged, read and changed while the server runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.telemetry.logs.settings import updated


class LogSettingsMethod:
    """Answers ``LogSettings``: changes what the request holds, all or none, and gives back all settings."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, request: Any) -> Any:
        """The settings after the change; errors as ``updated``."""
        log = self._engine.log
        if request.settings:
            log.change(updated(log.settings, {name: _value(found) for name, found in request.settings.items()}))
        return _message(asdict(log.settings))


def _value(setting: Any) -> bool | int | str | None:
    """What a setting holds; None when it holds nothing."""
    name = setting.WhichOneof("parameter_choice")
    found: bool | int | str | None = getattr(setting, name) if name else None
    return found


def _message(settings: Mapping[str, bool | int | str]) -> Any:
    response = message_class("LogSettingsResponse")()
    for name, value in settings.items():
        setattr(response.settings[name], _FIELDS[type(value)], value)
    return response


_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}
