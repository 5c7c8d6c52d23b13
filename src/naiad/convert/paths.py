"""Which formats can be reached from a source, in which order, and by which step from which other format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from naiad.convert.source import SourceKind

_STEPS: Final = "naiad.convert.steps."
_ONNX: Final = ("onnx", "onnx-trace")


@dataclass(frozen=True, slots=True)
class Path:
    """One way to a format.

    Attributes:
        function: of the step, as ``module:name``.
        takes: the arguments of the step beside ``file``: model, samples, signature, opset, names.
        parents: formats that it can start from, the best first; empty for the source itself.
        extra: more arguments.
    """

    target: str
    function: str
    takes: tuple[str, ...]
    parents: tuple[str, ...]
    extra: Mapping[str, Any]


def _path(target: str, function: str, takes: str, parents: tuple[str, ...] = (), **extra: Any) -> Path:
    return Path(target, _STEPS + function, tuple(takes.split()), parents, MappingProxyType(extra))


def _downstream(onnx: tuple[str, ...], openvino: tuple[str, ...]) -> tuple[Path, ...]:
    """The formats that are made of ONNX and the like."""
    return (
        _path("onnx-int8-dynamic", "quantized:dynamic", "names", onnx),
        _path("onnx-int8-static", "quantized:static", "samples names", onnx),
        _path("openvino", "openvino_files:convert", "signature names", openvino, half=False),
        _path("openvino-fp16", "openvino_files:convert", "signature names", openvino, half=True),
        _path("openvino-int8", "openvino_files:quantize", "samples signature", ("openvino",)),
        _path("tensorrt", "tensorrt_files:plan", "samples signature names", onnx),
    )


_TRACE: Final = _path("torchscript-trace", "torch_files:trace", "model samples signature")
_SCRIPT: Final = _path("torchscript-script", "torch_files:script", "model samples signature")
_EXPORT: Final = _path("torch-export", "torch_files:export", "model samples signature")
_AOT: Final = _path("aotinductor", "torch_files:compile_package", "samples signature", ("torch-export",))
_TORCH_ONNX: Final = _path("onnx", "onnx_files:from_torch", "model samples signature opset")
_TORCH_ONNX_TRACE: Final = _path("onnx-trace", "onnx_files:from_torch_traced", "model samples signature opset")
_SAVED: Final = _path("savedmodel", "tensorflow_files:saved_model", "model signature")
_SAVED_ONNX: Final = _path("onnx", "onnx_files:from_saved_model", "signature opset names", ("savedmodel",))
_COPIED: Final = _path("onnx", "onnx_files:copied", "model signature")
_ESTIMATOR: Final = _path("onnx", "onnx_files:from_estimator", "model samples signature opset")
_FOREST: Final = _path("treelite", "forest_files:checkpoint", "model")
_PYTHON: Final = _path("python", "python_model:write", "model signature")

_TENSORFLOW: Final = (_SAVED, _SAVED_ONNX, *_downstream(("onnx",), ("savedmodel", "onnx")))
_TREES: Final = (_ESTIMATOR, _FOREST)
PATHS: Final[Mapping[SourceKind, tuple[Path, ...]]] = MappingProxyType(
    {
        SourceKind.TORCH: (
            *(_TRACE, _SCRIPT, _EXPORT, _AOT, _TORCH_ONNX, _TORCH_ONNX_TRACE),
            *_downstream(_ONNX, ("onnx", "torch-export", "onnx-trace")),
        ),
        # The older exporter of ONNX takes no exported program.
        SourceKind.EXPORTED: (
            *(_EXPORT, _AOT, _TORCH_ONNX),
            *_downstream(("onnx",), ("onnx", "torch-export")),
        ),
        SourceKind.TORCHSCRIPT: (_TRACE, _TORCH_ONNX_TRACE, *_downstream(("onnx-trace",), ("onnx-trace",))),
        SourceKind.KERAS: _TENSORFLOW,
        SourceKind.SAVEDMODEL: _TENSORFLOW,
        SourceKind.ONNX: (_COPIED, *_downstream(("onnx",), ("onnx",))),
        SourceKind.SKLEARN: _TREES,
        SourceKind.XGBOOST: _TREES,
        SourceKind.LIGHTGBM: _TREES,
        SourceKind.PYTHON: (_PYTHON,),
    }
)


def paths_to(kind: SourceKind, wanted: tuple[str, ...]) -> tuple[Path, ...]:
    """The paths to the wanted formats and to those that they are made from, in an order in which they can be walked.

    Args:
        wanted: empty for all.
    """
    known = PATHS[kind]
    if not wanted:
        return known
    needed = set(wanted)
    for path in reversed(known):
        if path.target in needed:
            reached = [parent for parent in path.parents if any(other.target == parent for other in known)]
            # The best parent alone, unless one of the others is wanted anyhow.
            if reached and not needed & set(reached):
                needed.add(reached[0])
    return tuple(path for path in known if path.target in needed)
