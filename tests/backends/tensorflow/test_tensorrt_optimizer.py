"""The accelerator ``tensorrt`` of TensorFlow, which only releases up to 2.17 on GPUs have: what TensorFlow is told."""

from __future__ import annotations

import pytest

from naiad.backends.tensorflow.tensorrt_optimizer import TensorRtOptimizer, add_optimizer, read_optimizer
from naiad.config.spec import AcceleratorSpec
from naiad.errors import ModelLoadError


def read(**parameters: str) -> TensorRtOptimizer | None:
    return read_optimizer("m", [AcceleratorSpec("gpu_io", True), AcceleratorSpec("tensorrt", True, parameters)])


def test_the_parameters_of_the_reference() -> None:
    assert read_optimizer("m", [AcceleratorSpec("gpu_io", True)]) is None
    assert read() == TensorRtOptimizer("FP32", 3, 1 << 30, 100)
    found = read(
        precision_mode="fp16", minimum_segment_size="5", max_workspace_size_bytes="1024", max_cached_engines="7"
    )
    assert found == TensorRtOptimizer("FP16", 5, 1024, 7)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("precision_mode", "FP8", "expected FP32 or FP16 or INT8"),
        ("max_cached_engines", "0", "expected a whole number of at least 1"),
        ("precision", "FP16", "has no parameter 'precision', did you mean 'precision_mode'"),
    ],
)
def test_wrong_parameters_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ModelLoadError, match=words):
        read(**{name: value})


def test_what_tensorflow_is_told() -> None:
    pytest.importorskip("tensorflow", reason="the extra tensorflow is not installed")
    from tensorflow.core.protobuf import rewriter_config_pb2

    rewrite = rewriter_config_pb2.RewriterConfig()
    add_optimizer(rewrite, TensorRtOptimizer("FP16", 5, 1024, 7), 8)
    (added,) = rewrite.custom_optimizers
    values = added.parameter_map
    assert added.name == "TensorRTOptimizer" and values["precision_mode"].s == b"FP16"
    assert [values[key].i for key in ("minimum_segment_size", "max_workspace_size_bytes")] == [5, 1024]
    assert [values[key].i for key in ("maximum_cached_engines", "max_batch_size")] == [7, 8]
    assert values["is_dynamic_op"].b and not values["use_calibration"].b
