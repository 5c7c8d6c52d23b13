"""TensorRT inside TensorFlow: the accelerator ``tensorrt``, for releases of TensorFlow that are built with it.

Source: the parameters of the reference's tensorflow backend, and those of TensorFlow's ``TensorRTOptimizer``. 2.17 is
the last release that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.parameters import ParameterReader
from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import AcceleratorSpec

NAME: Final = "tensorrt"
_PRECISIONS: Final = ("FP32", "FP16", "INT8")
_KEYS: Final = ("precision_mode", "minimum_segment_size", "max_workspace_size_bytes", "max_cached_engines")
_OPTIMIZER: Final = "TensorRTOptimizer"


@dataclass(frozen=True, slots=True)
class TensorRtOptimizer:
    """How TensorFlow gives parts of a graph to TensorRT.

    Attributes:
        precision: FP32, FP16 or INT8.
        least_nodes: parts with fewer operators stay in TensorFlow.
        workspace_bytes: memory of the GPU for building and running.
        engines: how many engines a part may have, one for each shape.
    """

    precision: str = "FP32"
    least_nodes: int = 3
    workspace_bytes: int = 1 << 30
    engines: int = 100


def read_optimizer(model: str, accelerators: Sequence[AcceleratorSpec]) -> TensorRtOptimizer | None:
    """What a configuration asks for; None where it does not name ``tensorrt``.

    Raises:
        ModelLoadError: a parameter is unknown, or its value does not fit.
    """
    found = next((each for each in accelerators if each.name == NAME), None)
    if found is None:
        return None
    for key in found.parameters:
        if key not in _KEYS:
            raise ModelLoadError(
                f"model '{model}': the accelerator {NAME} has no parameter '{key}'"
                f"{did_you_mean(key, _KEYS) or ','} known are {', '.join(_KEYS)}"
            )
    reader = ParameterReader(model, found.parameters, f"parameter of the accelerator {NAME}")
    precision = (reader.text("precision_mode") or _PRECISIONS[0]).upper()
    if precision not in _PRECISIONS:
        raise reader.refused("precision_mode", " or ".join(_PRECISIONS))
    return TensorRtOptimizer(
        precision,
        reader.integer("minimum_segment_size", 3, 1),
        reader.integer("max_workspace_size_bytes", 1 << 30),
        reader.integer("max_cached_engines", 100, 1),
    )


def is_built_in() -> bool:
    """Whether the installed TensorFlow has TensorRT."""
    import tensorflow as tf

    return bool(tf.sysconfig.get_build_info().get("is_tensorrt_build", False))


def add_optimizer(rewrite: Any, wanted: TensorRtOptimizer, max_batch_size: int) -> None:
    """Have a session's ``RewriterConfig`` give parts of its graph to TensorRT, after TensorFlow's own optimisers."""
    optimizer = rewrite.custom_optimizers.add(name=_OPTIMIZER)
    values = optimizer.parameter_map
    values["precision_mode"].s = wanted.precision.encode()
    values["minimum_segment_size"].i = wanted.least_nodes
    values["max_workspace_size_bytes"].i = wanted.workspace_bytes
    values["maximum_cached_engines"].i = wanted.engines
    values["max_batch_size"].i = max(1, max_batch_size)
    # Engines are built for the shapes that come, the first of them while the model loads.
    values["is_dynamic_op"].b = True
    # INT8 takes the ranges that the graph itself has.
    values["use_calibration"].b = False
