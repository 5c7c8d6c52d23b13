"""Requests of models to load and unload other models (``pb_utils.load_model``, ``pb_utils.unload_model``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from naiad.errors import NaiadError, UnsupportedError
from naiad.execution.model_directory import ModelDirectory
from naiad.repository.local.overrides import Overrides

if TYPE_CHECKING:
    from naiad.execution.model_directory import ModelWait
    from naiad.lifecycle.state.load_threads import LoadPermit
    from naiad.lifecycle.state.operations import Operation

Done = Callable[[NaiadError | None], None]
"""Called once at the end of an operation, with its error or None."""


class ModelLoader(Protocol):
    """Starts loads and unloads; the manager.

    Attributes:
        loaded: the loads at the start of the server are over.
    """

    loaded: bool

    def begin_load(
        self, name: str, overrides: Overrides, done: Done, asker: RequestingVersion | None = None
    ) -> None: ...

    def begin_unload(
        self, name: str, unload_dependents: bool, done: Done, asker: RequestingVersion | None = None
    ) -> None: ...


class CallableModels(ModelDirectory, Protocol):
    """The directory of models that models call, with the caller's name for a wait; the engine."""

    def wait_for_model(self, error: NaiadError, size: int, done: Done, caller: str = "") -> ModelWait | None: ...


class RequestingVersion:
    """A version that may request loads and unloads. While it loads, its own load waits for them.

    Attributes:
        operation, permit: of its load; None once it is loaded.
        is_closing: it may request nothing more.
    """

    __slots__ = ("is_closing", "operation", "permit")

    def __init__(self, operation: Operation | None) -> None:
        self.operation = operation
        self.permit: LoadPermit | None = None
        self.is_closing = False

    def is_loaded(self) -> None:
        """Its load is over: nothing waits for its requests any more."""
        self.operation = self.permit = None


class AskingModels:
    """The ``ModelDirectory`` of one version: requests for loads carry the version that makes them."""

    __slots__ = ("_asker", "_control", "check", "find", "is_model_ready", "wait_for_model")

    def __init__(self, models: CallableModels, control: ModelLoader, asker: RequestingVersion, name: str) -> None:
        """``name`` is the key of the model that makes the requests."""
        # Bound here: a call of a model costs no further Python call.
        self.find = models.find
        self.check = models.check
        self.is_model_ready = models.is_model_ready
        self.wait_for_model = partial(models.wait_for_model, caller=name)
        self._control = control
        self._asker = asker

    def load_model(self, name: str, config: str | None, files: Mapping[str, str], done: Done) -> None:
        """Load a model; ``files`` has the content in base64 by name, such as ``file:1/model.py``.

        Raises:
            UnsupportedError: the requesting model is being closed.
        """
        self._check()
        self._control.begin_load(name, Overrides(config, files), done, self._asker)

    def unload_model(self, name: str, unload_dependents: bool, done: Done) -> None:
        """Unload a model; errors as ``load_model``."""
        self._check()
        self._control.begin_unload(name, unload_dependents, done, self._asker)

    def _check(self) -> None:
        if self._asker.is_closing:
            raise UnsupportedError("models cannot be loaded or unloaded while the model that asks is being closed")
