"""TensorFlow, imported without the packages that it only looks for: Keras and JAX.

TensorFlow imports Keras for the registry of optimizers, and JAX for its converter to TFLite. Graphs need neither.
Without Keras the import takes a quarter less processor time and 80 MiB less, without JAX as well half and 190 MiB less.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import ModuleSpec
from typing import Final

_LOOKED_FOR: Final = frozenset(("keras.src", "keras._tf_keras", "jax"))


class _LookedFor:
    """Hides packages from imports in one thread; what other threads import meanwhile is not touched."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Refuse the packages, and leave all others to the finders behind this one."""
        if name in _LOOKED_FOR and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not imported with TensorFlow", name=name)
        return None


def import_tensorflow() -> None:
    """Import TensorFlow, unless it is there already. Keras and JAX can be imported afterwards."""
    if "tensorflow" in sys.modules:
        return
    hiding = _LookedFor()
    sys.meta_path.insert(0, hiding)
    try:
        import tensorflow  # noqa: F401
    finally:
        sys.meta_path.remove(hiding)
