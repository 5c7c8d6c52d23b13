"""What all kinds of PyTorch models have in common for the backend."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.backend_api.backend import Instance
    from naiad.config.spec import ModelSpec


class TorchModel(ABC):
    """One model file of one kind. Used as ``Backend`` is: completed, started, asked for instances, closed."""

    @abstractmethod
    def complete(self, config: Any) -> None:
        """Fill in what the configuration leaves open; errors as ``Backend.complete``."""

    @abstractmethod
    def start(self, spec: ModelSpec, device: str | None) -> None:
        """Load the model on ``device``, that of the first instance; errors as ``Backend.start``."""

    @abstractmethod
    def instance(self, device: str | None) -> Instance:
        """An instance on ``device``; None leaves the model where it was saved."""

    @property
    @abstractmethod
    def settling_runs(self) -> int:
        """How many runs on zeros spare the first request a wait; 0 where one is impossible or leaves something behind.

        Called after ``start``.
        """

    def advice(self) -> str:
        """What ``naiad check`` says of a model that serves, "" for nothing."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Release what the instances shared."""


class LoadedModules:
    """What instances run, by device: one for each instance, or one for all on a device when ``share`` is set."""

    def __init__(self, load: Callable[[str | None], Any]) -> None:
        self.share = False
        self._load = load
        self._lock = threading.Lock()
        self._by_device: dict[str | None, Any] = {}

    def first(self, device: str | None) -> Any:
        """A module that stays here for the first instance."""
        module = self._by_device[device] = self._load(device)
        return module

    def take(self, device: str | None) -> Any:
        """The module for an instance."""
        with self._lock:
            module = self._by_device.pop(device, None)
            if module is None:
                module = self._load(device)
            if self.share:
                self._by_device[device] = module
        return module

    def clear(self) -> None:
        """Release the modules."""
        self._by_device.clear()
