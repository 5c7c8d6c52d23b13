"""Hints about a file that was named as a model and is of no kind that a backend reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from naiad.backends.registry import known
from naiad.config.complete import FORMATS
from naiad.config.parsing.suggest import did_you_mean

_WEIGHTS: Final = "weights without their model; put a model.py with the model's class beside them (backend pytorch)"
_OF_OPENVINO: Final = (
    'for OpenVINO put it into a repository, with a config.pbtxt: backend: "openvino" default_model_filename: "{name}"'
)
_KERAS: Final = 'Keras\'s older format; write the newer one: keras.models.load_model("{name}").save("{stem}.keras")'
_KINDS: Final = {
    ".h5": _KERAS,
    ".hdf5": _KERAS,
    ".pb": "TensorFlow's; of a SavedModel name the whole folder, and rename a frozen graph to {stem}.graphdef",
    ".safetensors": _WEIGHTS,
    ".ckpt": _WEIGHTS,
    ".bin": "data of a model; of OpenVINO name the {stem}.xml beside it",
    ".tflite": f"TensorFlow Lite; {_OF_OPENVINO}",
    ".pdmodel": f"Paddle; {_OF_OPENVINO}",
    ".cbm": 'CatBoost\'s; write ONNX: model.save_model("{stem}.onnx", format="onnx")',
}
"""What files with a suffix are, and what to do with them."""


def unknown_file_text(path: Path) -> str:
    """The text of the error about the file in ``path``: what it is, or which suffixes there are."""
    if (kind := _KINDS.get(path.suffix.lower())) is not None:
        return f"'{path}' is {kind.format(name=path.name, stem=path.stem)}"
    suffixes = list(dict.fromkeys(Path(form.filename).suffix for form in FORMATS if form.backend in known()))
    hint = did_you_mean(path.suffix, suffixes)
    return (
        f"'{path}' has the suffix '{path.suffix}', expected one of {', '.join(suffixes)}{hint}; "
        "models with another suffix need a repository with a config.pbtxt"
    )
