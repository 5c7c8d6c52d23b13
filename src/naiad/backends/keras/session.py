"""Loading a Keras model."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

_COLOURS: Final = re.compile(r"\x1b\[\d*m")
# TensorFlow's text is a stack of its own calls, then the reason, then the node of the graph.
_IN_GRAPH: Final = re.compile(r"^(?P<said>\S.*)\n\s*\[\[\{\{node (?P<place>[^}]+)\}\}\]\]", re.MULTILINE)
_ENCOUNTERED: Final = re.compile(r"Exception encountered: (?P<said>.+)")
_IN_LAYER: Final = re.compile(r"Exception encountered when calling (?P<place>\S+)\.\n+(?P<said>.+)")


def load_model(keras: Any, model: str, path: Path) -> Any:
    """The model in a ``.keras`` file, without its optimiser.

    Keras' safe mode stays on: a file cannot bring code of its own.

    Raises:
        ModelLoadError: it cannot be loaded, or does not say what its inputs are.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ModelLoadError(
            f"model '{model}': the model file {path} {what}; put the file of model.save(\"model.keras\") there, or "
            f"name it with default_model_filename in the configuration"
        )
    if not zipfile.is_zipfile(path):
        raise ModelLoadError(
            f"model '{model}': the model file {path} is no archive of Keras 3; it is empty, damaged, cut short or of "
            f'an older format; save it again with model.save("model.keras")'
        )
    try:
        with on_processor(keras):
            loaded = keras.saving.load_model(str(path), compile=False, safe_mode=True)
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': keras {keras.__version__} on {keras.backend.backend()} cannot load {path}: "
            f"{reason_of(error)}; {_hint(error)}"
        ) from error
    if not getattr(loaded, "inputs", None) or not getattr(loaded, "outputs", None):
        raise ModelLoadError(
            f"model '{model}': {path} holds a {type(loaded).__name__} that does not say what its inputs are; save a "
            f"functional model, or a Sequential one that begins with keras.Input"
        )
    # A compiled function for each size of a batch takes longer than the batches; JAX has no other way to run.
    if keras.backend.backend() != "jax":
        loaded.jit_compile = False
    return loaded


def on_processor(keras: Any) -> Any:
    """A context in which Keras uses no GPU."""
    return keras.device("cpu:0" if keras.backend.backend() != "torch" else "cpu")


def reason_of(error: Exception) -> str:
    """What Keras says, in a line: the kind of the error, its text, and the layer that it comes from."""
    text = _COLOURS.sub("", str(error)).strip()
    # A layer inside a layer repeats the whole text of the inner one, whose reason comes last.
    if encountered := _ENCOUNTERED.findall(text):
        return f"{type(error).__name__}: {encountered[-1]}"
    found = _IN_LAYER.match(text) or _IN_GRAPH.search(text)
    said = f"{found['said']} (in {found['place']})" if found else text.partition("\n")[0]
    return f"{type(error).__name__}: {said}"


def _hint(error: Exception) -> str:
    text = str(error).lower()
    if "lambda" in text or "safe_mode" in text:
        return "the file has code of its own, which safe mode refuses; use layers of Keras instead"
    if "could not locate" in text or "register_keras_serializable" in text:
        return "it uses a class that is not part of Keras; serve such a model as a Python model"
    return "the file is damaged or of another version of Keras; save it again"
