"""What a program binds to its server as a model: a function, or what another package makes of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from naiad.backend_api.backend import Backend, BackendContext
from naiad.backends.callable.backend import function_backend
from naiad.binding.function import BoundFunction
from naiad.binding.model_folder import write_model_folder
from naiad.errors import ModelLoadError


class BindableModel(Protocol):
    """A model of the program itself."""

    @property
    def model(self) -> str:
        """Its name."""

    def write_folder(self, repository: Path) -> Path:
        """Write its folder with the configuration, or write it anew; returns the folder.

        Raises:
            InvalidArgumentError: it cannot be served like this.
        """

    def backend(self, context: BackendContext) -> Backend:
        """What runs it, where its configuration names the backend ``callable``."""


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A function that is bound with ``Server.bind``."""

    function: BoundFunction

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.function.model

    def write_folder(self, repository: Path) -> Path:
        """Write the folder; errors as ``write_model_folder``."""
        return write_model_folder(repository, self.function)

    def backend(self, context: BackendContext) -> Backend:
        """What runs the function in threads."""
        return function_backend(context, self.function)


def backend_of_bound(models: Mapping[str, BindableModel]) -> Callable[[BackendContext], Backend]:
    """What creates the backends of ``models``, which are looked up by name when a model is loaded."""

    def create(context: BackendContext) -> Backend:
        bound = models.get(context.model)
        if bound is None:
            raise ModelLoadError(
                f"model '{context.model}' is a function of a program, and no function is bound under this name: call "
                f"Server.bind({context.model!r}, ...) before the model is loaded"
            )
        return bound.backend(context)

    return create
