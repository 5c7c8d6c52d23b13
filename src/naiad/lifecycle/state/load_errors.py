"""The errors of failed loads: for the caller, for the index and for the log.

Source of the texts: recorded responses of the reference server, which leaves the reason out of some.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from naiad.config.problems import ConfigProblemsError
from naiad.errors import (
    BackendUnavailableError,
    ConfigError,
    InternalError,
    InvalidArgumentError,
    ModelLoadError,
    NaiadError,
)
from naiad.lifecycle.state.model_table import VersionEntry
from naiad.lifecycle.state.states import ModelState
from naiad.repository.local.layout import ModelNameError
from naiad.repository.local.overrides import UnusableFilesError
from naiad.scheduling.ensemble.graph import EnsembleError

logger = logging.getLogger("naiad")


class NoVersionError(ModelLoadError):
    """The version policy of a model asks for versions that are not there."""


def as_load_error(error: Exception) -> NaiadError:
    """The error of a load; the traceback of an exception that is not Naiad's own goes to the log."""
    if isinstance(error, NaiadError):
        return error
    logger.error("unexpected error while loading", exc_info=error)
    return ModelLoadError(f"{type(error).__name__}: {error}")


def located(problem: NaiadError) -> str:
    """The text for the log, which may name the server's files."""
    return problem.located() if isinstance(problem, ConfigError) else str(problem)


def not_reloaded(problem: NaiadError) -> str:
    """The reason in the index for a version that still serves after a failed reload."""
    return f"serves as before, it could not be loaded again: {problem}"


def is_of_the_model(problem: NaiadError) -> bool:
    """Whether the reference finds what is wrong before it tries a version: in a configuration, or between models."""
    return isinstance(problem, EnsembleError) or (
        isinstance(problem, ConfigProblemsError) and not problem.is_of_loading
    )


def reason_of(problem: NaiadError) -> str:
    """The reason of a failed version as the protocol shows it: the name of the error's kind before its text."""
    return f"{_kind(problem)}{problem}"


def located_reason(problem: NaiadError) -> str:
    """The same for the log, which may name the server's files."""
    return f"{_kind(problem)}{located(problem)}"


def _kind(problem: NaiadError) -> str:
    if is_of_the_model(problem):
        return ""
    is_internal = isinstance(problem, ModelLoadError) and not isinstance(problem, BackendUnavailableError)
    return "Internal: " if is_internal or not isinstance(problem, InvalidArgumentError) else "Invalid argument: "


def not_found(name: str, problem: NaiadError) -> NaiadError:
    """The error of a load that ``problem`` ended before a version was tried."""
    # The request is at fault, not the model: the error keeps its kind and text.
    if isinstance(problem, UnusableFilesError | ModelNameError):
        return problem
    if isinstance(problem, NoVersionError):
        return ModelLoadError(f"load failed for model '{name}': {problem}\n")
    return InternalError(f"failed to load '{name}', failed to poll from model repository: {problem}")


def load_failed(name: str, versions: Iterable[VersionEntry], problem: NaiadError) -> NaiadError:
    """The error of a load of which a version failed with ``problem``."""
    if isinstance(problem, EnsembleError):
        return ModelLoadError(f"load failed for model '{name}': {problem}\n")
    if is_of_the_model(problem):
        return not_found(name, problem)
    failed = (v for v in versions if v.state is ModelState.UNAVAILABLE and not v.was_unloaded)
    lines = "".join(f"version {v.version} is at UNAVAILABLE state: {v.reason};\n" for v in failed)
    return ModelLoadError(f"load failed for model '{name}': {lines}")
