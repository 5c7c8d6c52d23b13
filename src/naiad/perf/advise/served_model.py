"""The model on its server, whose configuration is changed for trials and put back at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from naiad.perf.advise.setup import ModelSetup, UnadvisableError
from naiad.perf.target.protocol import TargetError


class ModelControl(Protocol):
    """The calls to the server."""

    @property
    def endpoint(self) -> str: ...

    def model_config(self) -> dict[str, Any]:
        """The configuration that the server has completed."""
        ...

    def load_model(self, config: str | None, on_wait: Callable[[float], None]) -> None:
        """Load the model with a configuration as JSON, or with that of the repository."""
        ...


class NotRestoredError(Exception):
    """The model does not have the configuration again that it had: the text says why, and what to do."""


class RefusedConfigError(Exception):
    """The server does not load the model with a configuration; the text is its cause."""


class ServedModel:
    """Changes the configuration of a model, and knows what it was.

    Args:
        on_wait: called about twice a second, with the seconds so far, while the model loads.

    Raises:
        TargetError: the server has no such model.
    """

    def __init__(self, control: ModelControl, name: str, on_wait: Callable[[float], None]) -> None:
        self._control = control
        self._name = name
        self._on_wait = on_wait
        self.config: Mapping[str, Any] = control.model_config()
        self._is_changed = False

    @property
    def is_changed(self) -> bool:
        """Whether the server may have another configuration than at first."""
        return self._is_changed

    def use(self, setup: ModelSetup) -> None:
        """Load the model with a configuration.

        Raises:
            UnadvisableError: the server does not take any: the first load is refused.
            RefusedConfigError: it does not take this one; it goes on with the one before.
            TargetError: the server is gone.
        """
        was_changed, self._is_changed = self._is_changed, True
        try:
            self._control.load_model(json.dumps(setup.config), self._on_wait)
        except TargetError as error:
            now = self._control.model_config()
            if was_changed:
                raise RefusedConfigError(str(error)) from None
            self._is_changed = now != self.config
            raise UnadvisableError(self._refusal(str(error))) from None
        if ("dynamic_batching" in self._control.model_config()) is not setup.is_batching:
            turned = "off" if setup.is_batching else "on"
            raise RefusedConfigError(f"the server turns batching {turned} by itself")

    def check_reachable(self) -> None:
        """See whether the server still has the model.

        Raises:
            TargetError: it does not, or is gone.
        """
        self._control.model_config()

    def _refusal(self, cause: str) -> str:
        if "explicit model load" in cause:
            return (
                f"the server at {self._control.endpoint} loads no models on request, which advise needs to try "
                "configurations: start it with --model-control-mode=explicit"
            )
        return f"'{self._name}' cannot be loaded with a configuration that comes with the request: {cause}"

    def restore(self) -> None:
        """Put back the configuration that the model had.

        The repository has it, as a rule. If the model had another one, from an earlier load request, that one is sent.

        Raises:
            NotRestoredError: the server does not take it.
        """
        if not self._is_changed:
            return
        try:
            if not self._is_back_from_repository():
                self._control.load_model(json.dumps(self.config), self._on_wait)
                self._check_back()
        except TargetError as error:
            raise NotRestoredError(
                f"the configuration that '{self._name}' had is not back: {error}; load it again, with "
                f"POST /v2/repository/models/{self._name}/load, or start the server anew"
            ) from None
        self._is_changed = False

    def _is_back_from_repository(self) -> bool:
        try:
            self._control.load_model(None, self._on_wait)
        except TargetError:
            # Its files may have changed since the server read them: then what it had is sent.
            return False
        return self._control.model_config() == self.config

    def _check_back(self) -> None:
        now = self._control.model_config()
        names = sorted(name for name in {*now, *self.config} if now.get(name) != self.config.get(name))
        if names:
            raise TargetError(f"the fields {', '.join(names)} differ from those that it had")
