"""The import of Keras: on the library of tensors that is chosen or there, and without leaving files behind.

Keras takes its choice from the environment variable KERAS_BACKEND and from ``~/.keras/keras.json``. It writes that file
where it is missing, with TensorFlow as the choice whatever is installed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from naiad.errors import first_line
from naiad.extras import MissingPackageError, how_to_install

LIBRARIES: Final = ("tensorflow", "torch", "jax")
"""What Keras runs on, in the order in which it is chosen."""
_CHOICE: Final = "KERAS_BACKEND"
_HOME: Final = "KERAS_HOME"
_64_BITS: Final = "JAX_ENABLE_X64"
# The environment belongs to the whole process, and models load in several threads.
_importing = threading.Lock()


def import_keras() -> Any:
    """The module ``keras``.

    Raises:
        ModuleNotFoundError: there is no Keras.
        MissingPackageError: Keras is there, and what it runs on cannot be imported.
    """
    with _importing:
        if "keras" in sys.modules:
            return sys.modules["keras"]
        if find_spec("keras") is None:
            raise ModuleNotFoundError("No module named 'keras'", name="keras")
        try:
            with _environment():
                keras = importlib.import_module("keras")
            if keras.backend.backend() == "jax":
                _allow_64_bits()
            return keras
        # ValueError is what Keras raises for the name of a library that it does not know.
        except (ImportError, OSError, ValueError) as error:
            # What is half imported would look imported to the next model.
            _forget()
            if isinstance(error, MissingPackageError):
                raise
            raise MissingPackageError(first_line(error), _how_to_choose()) from error


def _allow_64_bits() -> None:
    """Let JAX compute with 64 bits, unless the environment says otherwise: it would cut INT64 and FP64 to 32."""
    if not os.environ.get(_64_BITS):
        import jax

        jax.config.update("jax_enable_x64", True)


@contextmanager
def _environment() -> Iterator[None]:
    """The variables that Keras reads while it is imported; those of the server are as before afterwards."""
    before = {name: os.environ.get(name) for name in (_CHOICE, _HOME)}
    config = _config_file()
    with tempfile.TemporaryDirectory(prefix="naiad-keras-") as folder:
        try:
            if not before[_CHOICE]:
                os.environ[_CHOICE] = _choose(config)
            if not config.exists():
                os.environ[_HOME] = folder
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _choose(config: Path) -> str:
    """What the user's file says, if that is there, or else the first library that is."""
    try:
        wanted = json.loads(config.read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        wanted = None
    # The file may say TensorFlow only because Keras has written it.
    names = sorted(LIBRARIES, key=lambda name: name != wanted)
    chosen = next((name for name in names if find_spec(name) is not None), None)
    if chosen is None:
        raise MissingPackageError(f"it needs one of {', '.join(LIBRARIES)}, none is installed", how_to_install("torch"))
    return chosen


def _how_to_choose() -> str:
    return f"pip install torch, or another of {', '.join(LIBRARIES)}, and name it in the environment variable {_CHOICE}"


def _config_file() -> Path:
    return Path(os.environ.get(_HOME) or Path.home() / ".keras") / "keras.json"


def _forget() -> None:
    for name in [name for name in sys.modules if name == "keras" or name.startswith("keras.")]:
        del sys.modules[name]
