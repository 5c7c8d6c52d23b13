"""The environment of a framework's model that runs in processes, and whether it has what such a process imports."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from naiad.backend_api.backend import BackendContext
from naiad.backends.environments.environment import Environment, resolve
from naiad.backends.environments.packages import PackageFindings, look_for
from naiad.backends.environments.parameters import PACKED, PYTHON, REQUIREMENTS, requested
from naiad.backends.out_of_process.server_packages import DISTRIBUTIONS, VARIABLE, folders_of
from naiad.backends.registry import BACKENDS
from naiad.errors import BackendUnavailableError, ModelLoadError

OLDEST: Final = (3, 11)
"""The oldest Python that can import Naiad."""


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """The environment that the parameters of a model ask for.

    Attributes:
        backend: the name of the model's backend.
        parameters: those of its configuration.
    """

    backend: str
    context: BackendContext
    parameters: Mapping[str, str]

    @property
    def remedy(self) -> str:
        """What to do when the framework is there and cannot be imported, for error texts."""
        return f"add what it lacks to {self._place}"

    @property
    def _place(self) -> str:
        """The place that says what the environment has, for error texts."""
        name = requested(self.parameters)
        value = self.parameters.get(name, "")
        if name == REQUIREMENTS:
            return f"{value}, from which the model's environment is made"
        if name == PACKED:
            return f"the environment {value} (parameter '{PACKED}')"
        return f"the Python of the parameter '{PYTHON}': {value}"

    def resolved(self) -> Environment:
        """The environment, made or unpacked now unless it is there.

        Raises:
            ModelLoadError: it cannot be made or used.
            BackendUnavailableError: it lacks the framework.
        """
        context = self.context
        version = context.version_directory
        folder = context.model_path.absolute().parent if version is None else version.absolute().parent
        found = resolve(folder, self.parameters, context.backend_config, DISTRIBUTIONS)
        framework = _framework(self.backend)
        modules = (*DISTRIBUTIONS, *([framework] if framework else []))
        packages = look_for(found.python, modules, found.env)
        label = f"{'.'.join(map(str, packages.version))} ({found.python})"
        if packages.version < OLDEST:
            raise ModelLoadError(
                f"model '{context.model}': its environment has Python {label}, and the process of a model of "
                f"'{self.backend}' needs 3.11 or later"
            )
        if framework in packages.missing:
            raise BackendUnavailableError(
                f"model '{context.model}' needs the backend '{self.backend}', and its environment, Python {label}, has "
                f"no {framework}; add {framework} to {self._place}"
            )
        return self._with_server_packages(found, packages, label)

    def _with_server_packages(self, found: Environment, packages: PackageFindings, label: str) -> Environment:
        if not packages.missing:
            return found
        if packages.abi != (sysconfig.get_config_var("SOABI") or ""):
            wanted = [DISTRIBUTIONS[module] for module in packages.missing]
            own = ".".join(map(str, sys.version_info[:2]))
            raise ModelLoadError(
                f"model '{self.context.model}': its environment, Python {label}, has no {' and no '.join(wanted)}, and "
                f"those of the server are for its own Python {own}; run: {found.python} -m pip install "
                f"{' '.join(wanted)}"
            )
        return replace(found, env={**found.env, VARIABLE: folders_of(packages.missing)})


def environment_request(
    backend: str, context: BackendContext, parameters: Mapping[str, str]
) -> EnvironmentRequest | None:
    """The environment that a model asks for; None for one that runs with the server's own packages."""
    return EnvironmentRequest(backend, context, parameters) if requested(parameters) else None


def _framework(backend: str) -> str:
    entry = BACKENDS.get(backend)
    return "" if entry is None else entry.framework
