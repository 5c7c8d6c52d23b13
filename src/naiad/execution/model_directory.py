"""The directory of models: how a model that runs finds, checks, loads and unloads others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.request import Recipient
from naiad.tensor.dtypes import DataType


class ModelWait(Protocol):
    """The wait of one call for a model."""

    def leave(self) -> None:
        """End the wait without a call back."""


class Waits(Protocol):
    """Loads models for the calls that name them."""

    def wait_for_model(
        self, error: NaiadError, size: int, done: Callable[[NaiadError | None], None]
    ) -> ModelWait | None:
        """Load the model whose absence is ``error``, if it can be loaded for a request; None otherwise.

        ``done`` is called once, later: with None when the model serves, or with an error. ``size`` is the
        number of bytes that wait.

        Raises:
            UnavailableError: too many requests wait, or a load has just failed.
        """


class Target(Recipient, Protocol):
    """A model that serves, and can be called."""

    @property
    def spec(self) -> ModelSpec: ...

    def note_batches(self) -> None:
        """From now on let requests note the batch that they run in (``InferRequest.joined``)."""


class CalledInput(NamedTuple):
    """The description of one input of a call."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements the shape has."""
        found = 1
        for dim in self.shape:
            found *= dim
        return found


class Checked(NamedTuple):
    """The result of a check: outputs, batch rows and shape key of a call, as in ``RequestOptions``."""

    outputs: tuple[str, ...]
    rows: int
    shape_key: object


class ModelDirectory(Waits, Protocol):
    """The models that a model can call, and the rules for requests to them. The engine implements it."""

    def find(self, name: str, version: str | None) -> Target:
        """The model that serves a name and a version.

        Raises:
            NaiadError: no model serves them.
        """

    def is_model_ready(self, name: str, version: str | None) -> bool:
        """Whether a model, or one version of it, can serve requests.

        Raises:
            NaiadError: the version is no number.
        """

    def load_model(
        self, name: str, config: str | None, files: Mapping[str, str], done: Callable[[NaiadError | None], None]
    ) -> None:
        """Load a model; ``done`` is called later, with the error if it could not be loaded.

        Args:
            name: of the model.
            config: a configuration as JSON in place of the repository's own.
            files: content in base64 by name, such as ``file:1/model.py``, in place of the repository's own.
            done: called once, on the event loop.

        Raises:
            NaiadError: the load was refused, and ``done`` is not called.
        """

    def unload_model(self, name: str, unload_dependents: bool, done: Callable[[NaiadError | None], None]) -> None:
        """Unload a model, and with ``unload_dependents`` its members that nothing else needs.

        ``done`` and errors as in ``load_model``.
        """

    def check(self, spec: ModelSpec, inputs: Sequence[CalledInput], outputs: Sequence[str], request_id: str) -> Checked:
        """Check a request against its model.

        Raises:
            NaiadError: it does not fit.
        """
