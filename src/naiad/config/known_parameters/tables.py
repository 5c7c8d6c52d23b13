"""Which parameters a backend reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from naiad.config.known_parameters import every_model, fil, onnxruntime, openvino, pytorch, tensorflow, tensorrt
from naiad.config.known_parameters.parameter import KnownParameter

BY_BACKEND: Final[Mapping[str, tuple[KnownParameter, ...]]] = {
    "fil": fil.PARAMETERS,
    "keras": (),
    "onnxruntime": onnxruntime.PARAMETERS,
    "openvino": openvino.PARAMETERS,
    "pytorch": pytorch.PARAMETERS,
    "tensorflow": tensorflow.PARAMETERS,
    "tensorrt": tensorrt.PARAMETERS,
}
"""The parameters of each framework's backend.

Other backends are not here: a Python model reads any key it likes, and the built-in ones serve tests.
"""


def known_parameters(backend: str) -> tuple[KnownParameter, ...]:
    """The parameters that a model of ``backend`` may have; empty for a backend whose models read keys of their own."""
    own = BY_BACKEND.get(backend)
    return () if own is None else (*own, *every_model.PARAMETERS)


def find(key: str, known: tuple[KnownParameter, ...]) -> KnownParameter | None:
    """The parameter behind ``key``; None for an unknown one."""
    return next((parameter for parameter in known if parameter.is_key(key)), None)
