"""The contract of framework backends for ONNX models. ``test_onnxruntime.py`` has that of instances."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import onnx.parser  # noqa: E402
from onnx import helper  # noqa: E402

from backends.contract import FrameworkContract  # noqa: E402
from naiad.backend_api.backend import Arrays  # noqa: E402
from support import onnx_models  # noqa: E402
from support.framework import Framework, Pair, Signature, Tensor, damaged  # noqa: E402
from support.served_models import LOOK_UP  # noqa: E402

RAGGED = """<ir_version: 8, opset_import: ["": 17]>
ragged (float[n] X, int32[b] I) => (float[n] Y, int32[b, 1] C) {
  Y = Add (X, X)
  axes = Constant <value_ints = [1]> ()
  C = Unsqueeze (I, axes)
}"""


def network(path: Path, seed: int, hidden: int) -> Signature:
    random = np.random.default_rng(seed)
    weights = {
        "first": random.standard_normal((4, hidden), np.float32),
        "second": random.standard_normal((hidden, 3), np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["X", "first"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "second"], ["Y"]),
    ]
    onnx_models.save(path, nodes, {"X": ("FP32", ("N", 4))}, {"Y": ("FP32", ("N", 3))}, weights)
    return Signature((Tensor("X", "FP32", (4,)),), (Tensor("Y", "FP32", (3,)),))


@cache
def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(path)


def run(path: Path, inputs: Arrays) -> Arrays:
    session = session_of(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    nodes = [helper.make_node("Identity", [pair.input], [pair.output]) for pair in pairs]
    shapes = {pair.input: (pair.wire, ("N", f"length_{i}")) for i, pair in enumerate(pairs)}
    onnx_models.save(path, nodes, shapes, {pair.output: shapes[pair.input] for pair in pairs})
    inputs, outputs = ([Tensor(n, p.wire, (-1,)) for p in pairs for n in (getattr(p, x),)] for x in ("input", "output"))
    return Signature(tuple(inputs), tuple(outputs))


def scalar(path: Path) -> Signature:
    onnx_models.double(path, (), ())
    return Signature((Tensor("X", "FP32", (1,)),), (Tensor("Y", "FP32", (1,)),), max_batch_size=0)


def ragged(path: Path) -> None:
    path.write_bytes(onnx.parser.parse_model(RAGGED).SerializeToString())


def failing(path: Path) -> Signature:
    text = LOOK_UP.replace("index", "INDEX").replace("value)", "VALUE)").replace("value =", "VALUE =")
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


class TestContract(FrameworkContract):
    framework = Framework(
        name="onnxruntime",
        config='backend: "onnxruntime"',
        file="model.onnx",
        network=network,
        run=run,
        pool_parameter="intra_op_thread_count",
        broken=damaged(
            missing=r"there is no file \S+model\.onnx",
            empty=r"model\.onnx is empty",
            garbage=r"model\.onnx: .*INVALID_PROTOBUF.* the file is damaged",
            cut=r"model\.onnx: .*INVALID_PROTOBUF.* the file is damaged",
        ),
        mismatches={
            "name": "unexpected inference input 'wrong', allowed inputs are: X",
            "datatype": "says TYPE_INT32, the model has TYPE_FP32",
            "dims": "axis 1 is 5 where the model has 4",
        },
        identity=identity,
        # The framework's Python interface takes BF16 and strings in different calls.
        datatypes=(tuple(wire for wire in onnx_models.ONNX_TYPES if wire != "BYTES"), ("BYTES",)),
        strings="text",
        odd_names=("größe", "a b", "in:0/x", "0", "_.-~", "名"),
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure="onnxruntime: .*idx=99 must be within the inclusive range",
        process_reloads=(5, 40),
    )
