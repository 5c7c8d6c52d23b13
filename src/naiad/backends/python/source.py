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

from naiad.backend_api.backend import BackendContext
from naiad.backends.environments.parameters import PACKED, PYTHON, REQUIREMENTS
from naiad.config.complete import PYTHON_RUNTIME
from naiad.errors import ModelLoadError

_MOST_NAMED: Final = 5
_ENVIRONMENT: Final = f"pb_exec_env_{PYTHON_RUNTIME}.tar.gz"


@dataclass(frozen=True, slots=True)
class Source:
    """The code of a model and the folders that it gets. All paths are absolute.

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

        ``runtime``, and the packed environment that lies beside the backend's code (``pb_exec_env_model.py.tar.gz``),
        unless the model names one itself.
        """
        if self.backend_directory is None:
            return
        config.runtime = PYTHON_RUNTIME
        packed = self.backend_directory / _ENVIRONMENT
        if packed.is_file() and not any(name in config.parameters for name in (PACKED, REQUIREMENTS, PYTHON)):
            config.parameters[PACKED].string_value = str(packed)


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
    if not path.is_file():
        # The protocol's text, which people look for in the log.
        text = f"Failed to preinitialize Python stub: Python model file not found in '{path.absolute()}'"
        raise ModelLoadError(text + _others(path))
    if not os.access(path, os.R_OK):
        raise ModelLoadError(f"model '{model}': there is no readable file {path}")
    return path.absolute()


def _others(path: Path) -> str:
    """The hint for a model whose file has another name."""
    found = ", ".join(sorted(other.name for other in path.parent.glob("*.py"))[:_MOST_NAMED])
    return f", found {found} there: rename it or name it with default_model_filename" if found else ""
