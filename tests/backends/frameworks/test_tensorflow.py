"""The contract of framework backends for TensorFlow: SavedModels, and GraphDefs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.contract import FrameworkContract, InstanceContract, only
from naiad.backend_api.backend import Arrays
from naiad.tensor.dtypes import BY_WIRE
from support import tensorflow_models as models
from support.core_policies import CORES, WHY_NOT
from support.framework import Damage, Framework, Pair, Signature, Tensor, damaged
from support.framework_server import FrameworkServer
from support.tensorflow_models import tf, v1

# A process imports the framework for seconds; the contract of ONNX Runtime and TorchScript runs with --fast too.
# The first test imports it here too.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ODD_NAMES = ("größe", "a b", "in:0/x", "0", "_.-~", "名")


def weights(seed: int, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal((4, hidden), np.float32), random.standard_normal((hidden, 3), np.float32)


def network(path: Path, seed: int, hidden: int) -> Signature:
    module = tf.Module()
    module.first, module.second = (tf.Variable(array) for array in weights(seed, hidden))

    def call(X: Any) -> Mapping[str, Any]:
        return {"Y": tf.matmul(tf.tanh(tf.matmul(X, module.first)), module.second)}

    models.save(path, call, module, X=("FP32", (None, 4)))
    return Signature((Tensor("X", "FP32", (4,)),), (Tensor("Y", "FP32", (3,)),))


@cache
def function_of(path: Path) -> Any:
    return tf.saved_model.load(str(path)).signatures["serving_default"]


def run(path: Path, inputs: Arrays) -> Arrays:
    found = function_of(path)(**{name: tf.constant(array) for name, array in inputs.items()})
    return {name: tensor.numpy() for name, tensor in found.items()}


def save(path: Path, build: Callable[[], tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
    """A SavedModel whose signature has names of any kind for the inputs and outputs that ``build`` makes."""
    shutil.rmtree(path, ignore_errors=True)
    with tf.Graph().as_default(), v1.Session() as session:
        inputs, outputs = build()
        builder = v1.saved_model.Builder(str(path))
        signature = v1.saved_model.predict_signature_def(inputs, outputs)
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    def build() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        given = {pair.input: v1.placeholder(models.TYPES[pair.wire], (None, None)) for pair in pairs}
        return given, {pair.output: tf.identity(given[pair.input]) for pair in pairs}

    save(path, build)
    inputs, outputs = ([Tensor(n, p.wire, (-1,)) for p in pairs for n in (getattr(p, x),)] for x in ("input", "output"))
    return Signature(tuple(inputs), tuple(outputs))


def scalar(path: Path) -> Signature:
    models.double(path, shape=())
    return Signature((Tensor("X", "FP32", (1,)),), (Tensor("Y", "FP32", (1,)),), max_batch_size=0)


def ragged(path: Path) -> None:
    def build() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        x, counts = v1.placeholder(tf.float32, (None,)), v1.placeholder(tf.int32, (None,))
        return {"X": x, "I": counts}, {"Y": x + x, "C": tf.expand_dims(counts, 1)}

    save(path, build)


def failing(path: Path) -> Signature:
    table = tf.constant([10.0, 11.0, 12.0, 13.0])
    models.save(path, lambda INDEX: {"VALUE": tf.gather(table, INDEX)}, INDEX=("INT64", (None, 1)))
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


def without_values(path: Path) -> None:
    next((path / "variables").glob("variables.data*")).unlink()


class TestContract(FrameworkContract):
    framework = Framework(
        name="tensorflow",
        config='platform: "tensorflow_savedmodel"',
        file="model.savedmodel",
        network=network,
        run=run,
        pool_parameter="TF_NUM_INTRA_THREADS",
        broken={
            **damaged(
                "saved_model.pb",
                missing=r"model\.savedmodel is no SavedModel: it has .*variables, expected saved_model\.pb",
                empty=r"saved_model\.pb is empty",
                garbage=r"saved_model\.pb is no SavedModel: .* the file is damaged or cut short",
                cut=r"saved_model\.pb is no SavedModel: .* the file is damaged or cut short",
            ),
            "variables": Damage(without_values, r"tensorflow cannot load \S+model\.savedmodel: .*variables"),
        },
        mismatches={
            "name": "unexpected inference input 'wrong', allowed inputs are: X",
            "datatype": "says TYPE_INT32, the model has TYPE_FP32",
            "dims": "axis 1 is 5 where the model has 4",
        },
        identity=identity,
        datatypes=(tuple(BY_WIRE),),
        strings="bytes",
        odd_names=ODD_NAMES,
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure=r"tensorflow: indices\[0,0\] = 99 is not in \[0, 4\)",
        tolerance=1e-6,
        tolerance_reason="the threads of a product add up in another order for other numbers of rows",
        brief_modes=("process",),
        others_not_in=("process",),
        reloads=(10, 30),
        reloads_shared=False,
    )

    @pytest.mark.slow
    @pytest.mark.skipif(len(CORES) < 2, reason=WHY_NOT)
    @only("thread", "process")
    def test_every_thread_of_an_instance_is_on_the_cores_of_its_policy(self, served: FrameworkServer) -> None:
        """In processes as well: TensorFlow's own pools begin there in another way than in the server."""
        super().test_every_thread_of_an_instance_is_on_the_cores_of_its_policy(served)


class TestInstance(InstanceContract):
    framework = TestContract.framework
