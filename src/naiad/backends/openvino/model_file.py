"""The file or folder that a model is read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.backend_api.backend import BackendContext

SAVED_MODEL: Final = "saved_model.pb"
"""The file that makes a folder a SavedModel of TensorFlow."""
_SUFFIXES: Final = (".xml", ".onnx", ".pdmodel", ".tflite", ".pb", ".graphdef")
_MOST_NAMES: Final = 5


def model_file(context: BackendContext) -> Path:
    """The model of ``context``: the path itself, or the one model in it if it is a folder that is no model itself.

    Raises:
        ModelLoadError: it is not there, is empty, or is a folder with no model or several.
    """
    path = context.model_path
    if path.is_dir() and not (path / SAVED_MODEL).is_file():
        path = _only_model(context.model, path)
    if not path.exists():
        raise ModelLoadError(
            f"model '{context.model}': there is no file {path}{_beside(path)}; put the model there, or name it with "
            f"default_model_filename in the configuration"
        )
    if path.is_file() and path.stat().st_size == 0:
        raise ModelLoadError(f"model '{context.model}': the model file {path} is empty; export or copy it again")
    return path


def _only_model(model: str, folder: Path) -> Path:
    found = [path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found[:_MOST_NAMES]) or "none"
    raise ModelLoadError(
        f"model '{model}': {folder} is a folder and should hold one model ({', '.join(_SUFFIXES)}) or a SavedModel "
        f"({SAVED_MODEL}); it has {names}"
    )


def _beside(path: Path) -> str:
    """The models beside a path that is not there, for the error text."""
    folder = path.parent
    if not folder.is_dir():
        return ""
    found = [p.name for p in sorted(folder.iterdir()) if p.suffix in _SUFFIXES or (p / SAVED_MODEL).is_file()]
    return f", but there is {', '.join(found[:_MOST_NAMES])}" if found else ""
