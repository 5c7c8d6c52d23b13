"""The contract of framework backends for ONNX models on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.gpu_machine import lacking

if reason := lacking("onnxruntime"):
    pytest.skip(reason, allow_module_level=True)

import onnx
import onnxruntime

if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
    pytest.skip("the installed onnxruntime is not onnxruntime-gpu", allow_module_level=True)

from backends.contract import FrameworkContract
from backends.frameworks.test_onnx import TestContract as OnProcessor
from support.framework import Signature, Tensor

# CUDA gives 0 for an index beyond a table. So the shape of the table, which the processor checks, depends on the index.
LOOK_UP = """<ir_version: 8, opset_import: ["": 17]>
look_up (int64[N, 1] INDEX) => (float[N, 1] VALUE) {
  all = Constant <value_ints = [-1]> ()
  one = Constant <value_ints = [1]> ()
  four = Constant <value_ints = [4]> ()
  values = Constant <value_floats = [10.0, 11.0, 12.0, 13.0]> ()
  flat = Reshape (INDEX, all)
  largest = ReduceMax <axes = [0], keepdims = 1> (flat)
  needed = Add (largest, one)
  size = Max (needed, four)
  zeros = ConstantOfShape (size)
  fitting = Reshape (zeros, four)
  table = Add (values, fitting)
  VALUE = Gather (table, INDEX)
}"""


def failing(path: Path) -> Signature:
    path.write_bytes(onnx.parser.parse_model(LOOK_UP).SerializeToString())
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


class TestContract(FrameworkContract):
    framework = replace(
        OnProcessor.framework,
        kind="KIND_GPU",
        tolerance=1e-2,
        tolerance_reason="ONNX Runtime multiplies matrices in TF32 on a GPU, whose numbers have 10 binary places",
        failing=failing,
        failure="onnxruntime: .*cannot be reshaped",
        # The threads of the processor have nothing to do.
        pool_parameter="",
    )
