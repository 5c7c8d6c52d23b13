"""The contract of framework backends for plans of TensorRT. It needs a GPU, and was never run yet (docs/gpu.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.gpu_machine import TOLERANCE, TOLERANCE_REASON, lacking

if reason := lacking("tensorrt") or lacking("onnxruntime"):
    pytest.skip(reason, allow_module_level=True)

import onnxruntime
import tensorrt

from backends.contract import FrameworkContract, InstanceContract
from backends.frameworks import test_onnx as as_onnx
from naiad.backend_api.backend import Arrays
from support.framework import Framework, Pair, Signature, damaged

MOST_ROWS = 16
LONGEST = 1024
TYPES = ("FP32", "FP16", "BF16", "INT8", "INT32", "INT64", "UINT8", "BOOL")
DAMAGED = r"TensorRT \S+ cannot load \S+model\.plan: "


def built(path: Path, signature: Signature) -> Signature:
    """Put a plan in the place of the ONNX file at ``path``, which stays beside it."""
    source = path.with_suffix(".onnx")
    path.rename(source)
    builder = tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.ERROR))
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, tensorrt.Logger(tensorrt.Logger.ERROR))
    assert parser.parse_from_file(str(source)), [str(parser.get_error(i)) for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    # The processor does not round to TF32.
    config.clear_flag(tensorrt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        open_axes = [size < 0 for size in tensor.shape]
        sizes = [
            tuple(_size(size, axis, limit) for axis, size in enumerate(tensor.shape)) for limit in ("min", "opt", "max")
        ]
        if any(open_axes):
            profile.set_shape(tensor.name, *sizes)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    path.write_bytes(plan)
    return signature


def _size(size: int, axis: int, limit: str) -> int:
    if size >= 0:
        return size
    most = LONGEST if axis else MOST_ROWS
    return {"min": 0 if axis else 1, "opt": 4, "max": most}[limit]


def network(path: Path, seed: int, hidden: int) -> Signature:
    return built(path, as_onnx.network(path, seed, hidden))


@cache
def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(path.with_suffix(".onnx"), providers=["CPUExecutionProvider"])


def run(path: Path, inputs: Arrays) -> Arrays:
    session = session_of(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    return built(path, as_onnx.identity(path, pairs))


class TestContract(FrameworkContract):
    framework = Framework(
        name="tensorrt",
        config='backend: "tensorrt"',
        file="model.plan",
        kind="KIND_GPU",
        network=network,
        run=run,
        tolerance=TOLERANCE,
        tolerance_reason=TOLERANCE_REASON,
        completed_batch_size=MOST_ROWS,
        broken=damaged(missing=r"model\.plan is no file", empty=DAMAGED, garbage=DAMAGED, cut=DAMAGED),
        mismatches={
            "name": "unexpected inference input 'wrong', allowed inputs are: X",
            "datatype": "says TYPE_INT32, the model has TYPE_FP32",
            "dims": "axis 1 is 5 where the model has 4",
        },
        identity=identity,
        datatypes=(TYPES,),
        odd_names=("a b", "in:0/x", "0", "_.-~"),
        lacks={
            "scalar": "shape tensors and scalars are tested by hand on a GPU first",
            "ragged": "an engine has a range for each axis",
            "failing": "a look-up outside of a table is no error on a GPU",
        },
    )


class TestInstance(InstanceContract):
    framework = TestContract.framework
