"""The original's formats, and what Naiad calls them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from naiad.convert.errors import ConvertError
from naiad.navigator.exceptions import ModelNavigatorConfigurationError


class Format(StrEnum):
    """The original's formats."""

    PYTHON = "python"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    TORCHSCRIPT = "torchscript"
    TORCH_EXPORTEDPROGRAM = "torch-exportedprogram"
    TF_SAVEDMODEL = "tf-savedmodel"
    ONNX = "onnx"
    TENSORRT = "trt"
    TORCH_TRT = "torch-trt"
    TF_TRT = "tf-trt"


DEFAULT_NONE_FRAMEWORK_TARGET_FORMATS: Final = (Format.PYTHON,)
DEFAULT_ONNX_TARGET_FORMATS: Final = (Format.ONNX, Format.TENSORRT)
DEFAULT_TENSORFLOW_TARGET_FORMATS: Final = (Format.TF_SAVEDMODEL, Format.ONNX, Format.TENSORRT)
DEFAULT_TORCH_TARGET_FORMATS: Final = (
    Format.TORCHSCRIPT,
    Format.TORCH_EXPORTEDPROGRAM,
    Format.ONNX,
    Format.TORCH_TRT,
    Format.TENSORRT,
)

_OURS: Final = {
    Format.TORCHSCRIPT: ("torchscript-trace", "torchscript-script"),
    Format.TORCH_EXPORTEDPROGRAM: ("torch-export",),
    Format.TF_SAVEDMODEL: ("savedmodel",),
    Format.ONNX: ("onnx", "onnx-trace"),
    Format.TENSORRT: ("tensorrt",),
    Format.PYTHON: ("python",),
}
_KEYS: Final = {"onnx-dynamo": ("onnx",)}
"""The original's keys of models that are no names of formats."""
# Sources have no file of their own, and nothing here makes the formats of TensorRT inside torch and TensorFlow.
_NAMES: Final = frozenset(str(one) for one in Format)


def our_formats(wanted: Sequence[Any] | None) -> tuple[str, ...]:
    """Naiad's formats for the original's, or for names of Naiad's own; empty for all.

    Raises:
        ConvertError: there is no such format.
        ModelNavigatorConfigurationError: there are such formats, and Naiad makes none of them.
    """
    from naiad.convert.formats import chosen_formats

    found: list[str] = []
    for one in wanted or ():
        text = str(one)
        if text in _NAMES:
            found += _OURS.get(Format(text), ())
        else:
            try:
                found += chosen_formats((text,))
            except KeyError:
                raise ConvertError(f"there is no format '{text}'") from None
    if wanted and not found:
        raise ModelNavigatorConfigurationError(
            f"none of the target formats is made here: {', '.join(map(str, wanted))}; name others, or none for all"
        )
    return tuple(dict.fromkeys(found))


def formats_of_key(key: str) -> tuple[str, ...]:
    """Naiad's formats that a key of the original's models stands for, the preferred one first."""
    text = str(key)
    if text in _KEYS:
        return _KEYS[text]
    return _OURS.get(Format(text), (text,)) if text in _NAMES else (text,)
