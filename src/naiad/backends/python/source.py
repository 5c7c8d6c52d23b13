"""Where the code of a Python model lies: in its version's folder, or with a backend that serves many models.

A Python-based backend is a folder ``<backend-directory>/<name>`` with a ``model.py``. It runs every model whose
configuration says ``backend: "<name>"``; the folders of such models hold data alone. Source of the rules: the
reference's backend lookup and its Python backend.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from naiad.backends.base import BackendContext
from naiad.backends.python.environment import PACKED, PYTHON, REQUIREMENTS
from naiad.config.complete import PYTHON_RUNTIME
from naiad.errors import ModelLoadError

_ENVIRONMENT: Final = f"pb_exec_env_{PYTHON_RUNTIME}.tar.gz"
_REQUIREMENTS: Final = "requirements.txt"


@dataclass(frozen=True, slots=True)
class Source:
    """The code of a model and what it is told about places. All paths are absolute.

    Attributes:
        model_py: the file with ``TritonPythonModel``.
        model_directory: the model's folder, which holds those of its versions.
        version_directory: what ``get_model_dir()`` says.
        paths: what is appended to ``sys.path``.
        backend_directory: the folder of a Python-based backend, None for a model with code of its own.
    """

    model_py: Path
    model_directory: Path
    version_directory: Path
    paths: tuple[Path, ...]
    backend_directory: Path | None = None

    def describe(self, config: Any) -> None:
        """Note in the configuration message of a model what its Python-based backend brings along.

        ``runtime``, and the environment that lies beside the backend's code, unless the model names one itself: a
        packed one (``pb_exec_env_model.py.tar.gz``), else one to be made from ``requirements.txt``.
        """
        if self.backend_directory is None:
            return
        config.runtime = PYTHON_RUNTIME
        if (found := _environment(self.backend_directory, config.parameters)) is not None:
            parameter, path = found
            config.parameters[parameter].string_value = str(path)


def own_source(context: BackendContext) -> Source:
    """The code in the version's folder.

    Raises:
        ModelLoadError: its name does not end with ``.py``, or it cannot be read.
    """
    path = context.model_path
    if path.suffix != ".py":
        raise ModelLoadError(f"Model name must end with '.py'. Model name is \"{path.name}\".")
    model_py = _readable(path, context.model)
    folder = model_py.parent
    version = (context.version_directory or folder).absolute()
    return Source(model_py, version.parent, folder, (folder, folder.parent))


def shared_source(context: BackendContext, model_py: Path) -> Source:
    """The code of the Python-based backend whose file is ``model_py``, for one model.

    Raises:
        ModelLoadError: it cannot be read.
    """
    model_py = _readable(model_py, context.model)
    version = (context.version_directory or context.model_path.parent).absolute()
    return Source(model_py, version.parent, version, (model_py.parent,), model_py.parent)


def _readable(path: Path, model: str) -> Path:
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ModelLoadError(f"model '{model}': there is no readable file {path}")
    return path.absolute()


def _environment(backend_directory: Path, parameters: Any) -> tuple[str, Path] | None:
    """The parameter that names the backend's own environment, and its value."""
    packed, requirements = backend_directory / _ENVIRONMENT, backend_directory / _REQUIREMENTS
    if PACKED in parameters or REQUIREMENTS in parameters:
        return None
    if packed.is_file() and PYTHON not in parameters:
        return PACKED, packed
    return (REQUIREMENTS, requirements) if requirements.is_file() else None
