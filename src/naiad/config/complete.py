"""Fills in the fields that follow from the model's files: name, backend, platform and file name.

This step always runs, also with ``--disable-auto-complete-config``. What the framework knows of the model (inputs,
outputs, batching) is filled in later by ``Backend.complete``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ConfigError

if TYPE_CHECKING:
    from naiad.config.source import ModelSource

ENSEMBLE = "ensemble"
PYTHON_RUNTIME = "model.py"
"""The file of a Python-based backend, and the ``runtime`` of its models."""


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """One kind of model file: its backend, its default name, and ``platform`` ("" for none).

    ``companion``: the suffix of a second file. The model may then have any name, if it is the only one in its folder.
    ``is_stated``: the file alone does not say so, only a configuration that names the backend.
    """

    backend: str
    platform: str
    filename: str
    is_directory: bool = False
    companion: str = ""
    is_stated: bool = False


_SAVED_MODEL_FORMAT = ModelFormat("tensorflow", "tensorflow_savedmodel", "model.savedmodel", is_directory=True)
# In the order in which files are looked for (configuration reference, section "Auto-complete").
FORMATS = (
    _SAVED_MODEL_FORMAT,
    ModelFormat("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    ModelFormat("tensorrt", "tensorrt_plan", "model.plan"),
    ModelFormat("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    ModelFormat("openvino", "", "model.xml", companion=".bin"),
    ModelFormat("pytorch", "pytorch_libtorch", "model.pt"),
    ModelFormat("pytorch", "pytorch_libtorch", "model.py", is_stated=True),
    ModelFormat("pytorch", "torch_aoti", "model.pt2"),
    ModelFormat("python", "", "model.py"),
    # After Python models, which may have such a file beside them.
    ModelFormat("fil", "", "xgboost.json"),
    ModelFormat("fil", "", "xgboost.ubj"),
    ModelFormat("fil", "", "xgboost.model"),
    ModelFormat("fil", "", "model.txt"),
    ModelFormat("fil", "", "checkpoint.tl"),
    ModelFormat("fil", "", "model.skops"),
    ModelFormat("fil", "", "model.joblib"),
    ModelFormat("keras", "", "model.keras"),
)
_COMMON_SUFFIXES = frozenset({".json", ".txt", ".model"})
"""Suffixes of many kinds of files: in a folder such a file is a model only under its full name."""
_OTHER_SUFFIXES = {".pkl": ".joblib", ".pickle": ".joblib", ".pth": ".pt"}
"""Further suffixes of files that are given on the command line, and the usual ones of such files."""

PLATFORMS: dict[str, str] = {f.platform: f.backend for f in FORMATS if f.platform}
"""Backend by platform name."""

_SAVED_MODEL = "saved_model.pb"


def complete_fields(config: Any, source: ModelSource, folder: Path | None) -> None:
    """Fill ``name``, ``backend``, ``platform`` and ``default_model_filename`` of ``config`` where they are empty.

    ``folder`` is the version folder to look into, None when the model has no version.

    Raises:
        ConfigError: nothing tells which backend runs the model.
    """
    if not config.name:
        config.name = source.name
    if is_ensemble(config):
        return
    model_format = _format_of(config, source, folder)
    if model_format is not None:
        _fill(config, model_format, _filename(config, model_format, folder))
        if source.single_file is not None:
            config.default_model_filename = source.single_file.name
    elif not config.backend and not config.platform:
        _complete_from_name(config, source, folder)


def is_ensemble(config: Any) -> bool:
    """True when the model is a graph of other models and so has no backend of its own."""
    return bool(config.platform == ENSEMBLE or config.HasField("ensemble_scheduling"))


def format_by_suffix(filename: str) -> ModelFormat | None:
    """The kind of model that a file called ``filename`` holds, by its suffix; None when it is not known."""
    name, suffix = Path(filename).name, Path(filename).suffix
    if suffix in _COMMON_SUFFIXES:
        return next((f for f in FORMATS if f.filename == name), None)
    return _with_suffix(suffix)


def format_of_file(path: Path) -> ModelFormat | None:
    """The kind of model in a file or a SavedModel's folder that the user has named; None when it is not known.

    It is a model for certain, so that a suffix is enough. The backend then looks into it.
    """
    if is_saved_model(path):
        return _SAVED_MODEL_FORMAT
    return _with_suffix(_OTHER_SUFFIXES.get(path.suffix, path.suffix))


def is_saved_model(path: Path) -> bool:
    """True for the folder of a SavedModel of TensorFlow, whatever it is called."""
    return (path / _SAVED_MODEL).is_file()


def _with_suffix(suffix: str) -> ModelFormat | None:
    return next((f for f in FORMATS if Path(f.filename).suffix == suffix and not f.is_stated), None) if suffix else None


def _format_of(config: Any, source: ModelSource, folder: Path | None) -> ModelFormat | None:
    if config.backend or config.platform:
        return _stated_format(config, folder)
    if source.single_file is not None:
        return format_of_file(source.single_file)
    if config.default_model_filename:
        return format_by_suffix(config.default_model_filename)
    usual = next((f for f in FORMATS if _present(f, folder) and not f.is_stated), None)
    return usual or next((f for f in FORMATS if _other_name(f, folder, f.companion)), None)


def _stated_format(config: Any, folder: Path | None) -> ModelFormat | None:
    """The kind of model that the configuration's own backend and platform call for."""
    matching = [
        f
        for f in FORMATS
        if (not config.backend or f.backend == config.backend)
        and (not config.platform or f.platform == config.platform)
    ]
    if not matching and config.platform not in PLATFORMS:
        # An unknown platform says nothing about the file.
        matching = [f for f in FORMATS if f.backend == config.backend]
    suffix = Path(config.default_model_filename).suffix
    preferred = (
        [f for f in matching if suffix and Path(f.filename).suffix == suffix]
        or [f for f in matching if _present(f, folder)]
        or matching
    )
    return preferred[0] if preferred else None


def _present(model_format: ModelFormat, folder: Path | None) -> bool:
    if folder is None:
        return False
    path = folder / model_format.filename
    return path.is_dir() if model_format.is_directory else path.exists()


def _other_name(model_format: ModelFormat, folder: Path | None, companion: str) -> str:
    """The only file in ``folder`` with the suffix of ``model_format``.

    "" for none, several, or one without a file beside it that has the suffix ``companion``.
    """
    if not model_format.companion or folder is None or not folder.is_dir():
        return ""
    found = [path for path in folder.iterdir() if path.suffix == Path(model_format.filename).suffix]
    return found[0].name if len(found) == 1 and found[0].with_suffix(companion).exists() else ""


def _filename(config: Any, model_format: ModelFormat, folder: Path | None) -> str:
    """The model's file: the stated one, the usual one, or the only one of its kind."""
    if config.default_model_filename or _present(model_format, folder):
        return str(config.default_model_filename) or model_format.filename
    # Without its companion too: the backend then says what is missing.
    return _other_name(model_format, folder, Path(model_format.filename).suffix) or model_format.filename


def _fill(config: Any, model_format: ModelFormat, filename: str) -> None:
    config.backend = config.backend or model_format.backend
    config.platform = config.platform or model_format.platform
    config.default_model_filename = filename


def _complete_from_name(config: Any, source: ModelSource, folder: Path | None) -> None:
    """A model called ``x.<backend>`` is run by that backend."""
    if config.default_model_filename:
        # The rules then say that platform and backend are missing.
        return
    backend = config.name.partition(".")[2]
    if not backend:
        raise ConfigError(
            f"Invalid model name: Could not determine backend for model '{config.name}' with no backend in model "
            f"configuration. Expected model name of the form 'model.<backend_name>'.{_hint(source, folder)}",
            source.config_file,
        )
    config.backend = backend
    config.default_model_filename = f"model.{backend}"


def _hint(source: ModelSource, folder: Path | None) -> str:
    """Advice from the files that are there."""
    if source.single_file is not None:
        suffixes = [Path(f.filename).suffix for f in FORMATS]
        suffix = source.single_file.suffix
        return f" Found the suffix '{suffix}', expected one of {', '.join(suffixes)}{did_you_mean(suffix, suffixes)}."
    if folder is None:
        return ""
    if is_saved_model(folder):
        # As TensorFlow Serving has it.
        return f" Found a SavedModel in '{folder}' itself: move its files into a folder 'model.savedmodel' there."
    for path in sorted(folder.iterdir()):
        if is_saved_model(path):
            return f" Found a SavedModel in '{path}': call the folder 'model.savedmodel'."
        if (model_format := format_by_suffix(path.name)) is not None:
            return (
                f" Found '{path.name}' in '{folder}': call it '{model_format.filename}', or set "
                f'default_model_filename: "{path.name}" in config.pbtxt.'
            )
    # PyTorch and Python have files of one name.
    expected = ", ".join(dict.fromkeys(f.filename for f in FORMATS))
    return f" Found no model file in '{folder}', expected one of {expected}."
