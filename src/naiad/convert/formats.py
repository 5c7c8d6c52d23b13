"""The formats that a model can be converted to: what each is called, made from and served by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Precision(StrEnum):
    """What the weights of a format are, which decides by how much its outputs may differ."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much an output may differ: ``absolute``, or ``relative`` to the greatest magnitude of that output."""

    absolute: float
    relative: float


TOLERANCES: Final = MappingProxyType(
    {
        Precision.FP32: Tolerance(1e-5, 1e-4),
        Precision.FP16: Tolerance(1e-2, 1e-2),
        Precision.BF16: Tolerance(3e-2, 3e-2),
    }
)
"""INT8 has none: only the user's metric can say whether a quantised model is good enough."""


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """One format.

    Attributes:
        name: as ``--formats`` takes it.
        group: the word of ``--formats`` for all formats of a kind.
        file: what a version folder of a repository has.
        platform, backend: of a configuration; one of them is empty, and both are if the format is not served.
        module: the package that runs it.
    """

    name: str
    group: str
    file: str
    module: str
    platform: str = ""
    backend: str = ""
    precision: Precision = Precision.FP32
    extra: str = ""

    @property
    def is_served(self) -> bool:
        """Whether Naiad serves it."""
        return bool(self.platform or self.backend)


_ALL: Final = (
    TargetFormat("torchscript-trace", "torchscript", "model.pt", "torch", "pytorch_libtorch", extra="torch"),
    TargetFormat("torchscript-script", "torchscript", "model.pt", "torch", "pytorch_libtorch", extra="torch"),
    TargetFormat("torch-export", "torch-export", "model.pt2", "torch", backend="pytorch", extra="torch"),
    TargetFormat("aotinductor", "aotinductor", "model.pt2", "torch", "torch_aoti", extra="torch"),
    TargetFormat("onnx", "onnx", "model.onnx", "onnxruntime", "onnxruntime_onnx", extra="convert"),
    TargetFormat("onnx-trace", "onnx", "model.onnx", "onnxruntime", "onnxruntime_onnx", extra="convert"),
    TargetFormat(
        "onnx-int8-dynamic", "onnx-int8", "model.onnx", "onnxruntime", "onnxruntime_onnx", "", Precision.INT8, "convert"
    ),
    TargetFormat(
        "onnx-int8-static", "onnx-int8", "model.onnx", "onnxruntime", "onnxruntime_onnx", "", Precision.INT8, "convert"
    ),
    TargetFormat("openvino", "openvino", "model.xml", "openvino", backend="openvino", extra="openvino"),
    TargetFormat("openvino-fp16", "openvino", "model.xml", "openvino", "", "openvino", Precision.FP16, "openvino"),
    TargetFormat("openvino-int8", "openvino-int8", "model.xml", "openvino", "", "openvino", Precision.INT8, "convert"),
    TargetFormat(
        "savedmodel", "savedmodel", "model.savedmodel", "tensorflow", "tensorflow_savedmodel", extra="tensorflow"
    ),
    TargetFormat("treelite", "treelite", "checkpoint.tl", "treelite", backend="fil", extra="fil"),
    TargetFormat("tensorrt", "tensorrt", "model.plan", "tensorrt", "", "", Precision.FP32, "convert"),
    TargetFormat("python", "python", "model.py", "numpy", backend="python"),
)
FORMATS: Final = MappingProxyType({target.name: target for target in _ALL})
"""All of them by name."""
GROUPS: Final = tuple(dict.fromkeys(target.group for target in _ALL))
"""The words of ``--formats`` that stand for several."""


def chosen_formats(words: tuple[str, ...]) -> tuple[str, ...]:
    """The names that ``words`` (names and groups) stand for, in the order of the table. A name stands for itself alone.

    Raises:
        KeyError: a word is none of them; its first argument is the word.
    """
    for word in words:
        if word not in FORMATS and word not in GROUPS:
            raise KeyError(word)
    groups = set(words) - set(FORMATS)
    return tuple(name for name, target in FORMATS.items() if name in words or target.group in groups)
