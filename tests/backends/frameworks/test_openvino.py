"""The contract of framework backends for models on OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if find_spec("openvino") is None:
    pytest.skip("the extra openvino is not installed", allow_module_level=True)

from backends.contract import FrameworkContract, InstanceContract
from naiad.backend_api.backend import Arrays
from support import openvino_models as made
from support.framework import Damage, Framework, Pair, Signature, Tensor, damaged
from support.openvino_models import openvino, opset13


def network(path: Path, seed: int, hidden: int) -> Signature:
    random = np.random.default_rng(seed)
    x = made.parameter("X", "FP32", (-1, 4))
    first = opset13.matmul(x, random.standard_normal((4, hidden), np.float32), False, False)
    second = opset13.matmul(opset13.tanh(first), random.standard_normal((hidden, 3), np.float32), False, False)
    made.save(path, made.model([x], {"Y": second}))
    return Signature((Tensor("X", "FP32", (4,)),), (Tensor("Y", "FP32", (3,)),))


@cache
def compiled(path: Path) -> Any:
    return openvino.Core().compile_model(str(path), "CPU")


def run(path: Path, inputs: Arrays) -> Arrays:
    return {"Y": compiled(path).create_infer_request().infer(dict(inputs))["Y"]}


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    made.save(path, made.echo({pair.input: pair.output for pair in pairs}, [pair.wire for pair in pairs], (-1, -1)))
    inputs, outputs = ([Tensor(getattr(p, x), p.wire, (-1,)) for p in pairs] for x in ("input", "output"))
    return Signature(tuple(inputs), tuple(outputs))


def scalar(path: Path) -> Signature:
    made.save(path, made.double(()))
    return Signature((Tensor("X", "FP32", (1,)),), (Tensor("Y", "FP32", (1,)),), max_batch_size=0)


def ragged(path: Path) -> None:
    x, i = made.parameter("X", "FP32", (-1,)), made.parameter("I", "INT32", (-1,))
    made.save(path, made.model([x, i], {"Y": opset13.add(x, x), "C": opset13.unsqueeze(i, np.array([1]))}))


def failing(path: Path) -> Signature:
    """An index outside of the table alone is no failure: it gives 0. Here it asks for a shape that cannot be."""
    index = made.parameter("INDEX", "INT64", (-1, 1))
    found = opset13.gather(np.array([10, 11, 12, 13], np.float32), index, np.array(0))
    largest = opset13.reduce_max(index, np.array([0, 1]), True)
    width = opset13.select(opset13.greater(largest, np.array([[3]])), np.array([[7]]), np.array([[1]]))
    shape = opset13.concat([np.array([-1]), opset13.reshape(width, np.array([1]), False)], 0)
    made.save(path, made.model([index], {"VALUE": opset13.reshape(found, shape, False)}))
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


class TestContract(FrameworkContract):
    framework = Framework(
        name="openvino",
        config='backend: "openvino"',
        file="model.xml",
        network=network,
        run=run,
        pool_parameter="INFERENCE_NUM_THREADS",
        broken={
            **damaged(
                missing=r"there is no file \S+model\.xml",
                empty=r"model\.xml is empty",
                garbage=r"model\.xml: it is not XML .* the file is damaged",
                cut=r"model\.xml: it is not XML .* the file is damaged",
            ),
            "no_weights": Damage(lambda path: path.with_suffix(".bin").unlink(), r"there is no model\.bin beside it"),
        },
        mismatches={
            "name": "unexpected inference input 'wrong', allowed inputs are: X",
            "datatype": "says TYPE_INT32, the model has TYPE_FP32",
            "dims": "axis 1 is 5 where the model has 4",
        },
        identity=identity,
        datatypes=(tuple(wire for wire in made.TYPES if wire != "BYTES"), ("BYTES",)),
        strings="bytes",
        odd_names=("größe", "a b", "in:0/x", "0", "_.-~", "名"),
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure=r"openvino: \[CPU\] Reshape node .* conflicts with the reshape pattern \(-1\.7\)",
        slow_modes=("process", "shared"),
        reloads=(10, 30),
    )


class TestInstance(InstanceContract):
    framework = TestContract.framework
