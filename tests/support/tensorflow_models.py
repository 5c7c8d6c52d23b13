"""Small TensorFlow models, saved as SavedModels and as frozen graphs. A file that imports this needs tensorflow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from naiad.tensor.dtypes import BY_WIRE
from support.lazy_module import lazy_module

WITHOUT = "needs the extra tensorflow"
tf = lazy_module("tensorflow", WITHOUT)
v1 = lazy_module("tensorflow.compat.v1", WITHOUT)

TYPES = {wire: "string" if dtype.is_bytes else dtype.numpy.name for wire, dtype in BY_WIRE.items()}
Shape = Sequence[int | None] | None


def save(folder: Path, call: Callable[..., Mapping[str, Any]], module: Any = None, **inputs: Any) -> Path:
    """Write a SavedModel whose default signature is ``call``; the folder.

    Args:
        module: has the variables that ``call`` uses.
        inputs: a pair of a type and a shape for each.
    """
    return save_signatures(folder, {"serving_default": function(call, **inputs)}, module)


def function(call: Callable[..., Mapping[str, Any]], **inputs: Any) -> Any:
    """The concrete function of ``call``."""
    signature = {name: tf.TensorSpec(shape, TYPES[wire], name) for name, (wire, shape) in inputs.items()}
    return tf.function(call).get_concrete_function(**signature)


def save_signatures(folder: Path, signatures: Mapping[str, Any], module: Any = None) -> Path:
    """Write a SavedModel with these signatures; the folder."""
    module = module or tf.Module()
    # What a signature uses must be reachable from the module.
    module.signatures_of_test = list(signatures.values())
    tf.saved_model.save(module, str(folder), dict(signatures))
    return folder


def echo(folder: Path, wire: str = "FP32", shape: Shape = (None, 3)) -> Path:
    """Inputs A and B, outputs X (= A) and Y (= B)."""
    return save(
        folder,
        lambda A, B: {"X": tf.identity(A), "Y": tf.identity(B)},
        A=(wire, shape),
        B=(wire, shape),
    )


def double(folder: Path, wire: str = "FP32", shape: Shape = (None, 3)) -> Path:
    """Y = X + X."""
    return save(folder, lambda X: {"Y": X + X}, X=(wire, shape))


def dense(folder: Path, width: int = 8, layers: int = 1) -> tuple[Path, np.ndarray]:
    """Y = X times ``layers`` matrices of random numbers, which are variables; the folder and their product."""
    random = np.random.default_rng(7)
    weights = [random.standard_normal((width, width), np.float32) for _ in range(layers)]
    module = tf.Module()
    module.weights = [tf.Variable(w) for w in weights]

    def call(X: Any) -> Mapping[str, Any]:
        for weight in module.weights:
            X = tf.matmul(X, weight)
        return {"Y": X}

    save(folder, call, module, X=("FP32", (None, width)))
    product = np.eye(width, dtype=np.float32)
    for weight in weights:
        product = product @ weight
    return folder, product


def freeze(file: Path, build: Callable[[], object]) -> Path:
    """Write the graph that ``build`` makes, as TensorFlow 1 froze graphs; the file."""
    with tf.Graph().as_default() as graph:
        build()
        file.write_bytes(graph.as_graph_def().SerializeToString())
    return file


def frozen_echo(file: Path, wire: str = "FP32", shape: Shape = (None, 3)) -> Path:
    """A GraphDef with placeholders A and B and outputs X (= A) and Y (= B)."""

    def build() -> None:
        for name, source in (("X", "A"), ("Y", "B")):
            tf.identity(v1.placeholder(TYPES[wire], shape, name=source), name=name)

    return freeze(file, build)


def frozen_variable(file: Path, value: float = 3.0) -> Path:
    """A GraphDef of TensorFlow 1 with Y = X times constants that were a variable."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 2), name="X")
        weight = v1.get_variable("weight", initializer=np.full((2,), value, np.float32), use_resource=False)
        tf.multiply(x, weight, name="Y")
        session.run(v1.global_variables_initializer())
        frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["Y"])
    file.write_bytes(frozen.SerializeToString())
    return file


def frozen_table(file: Path) -> Path:
    """A GraphDef that looks words up in a table, which the operator ``init`` fills."""

    def build() -> None:
        words = v1.placeholder(tf.string, (None, 1), name="WORD")
        initializer = tf.lookup.KeyValueTensorInitializer(["one", "two"], [1, 2], tf.string, tf.int64)
        table = v1.lookup.StaticHashTable(initializer, -1) if hasattr(v1, "lookup") else None
        assert table is not None
        tf.identity(table.lookup(words), name="NUMBER")
        v1.tables_initializer("init")

    return freeze(file, build)


def tagged(folder: Path, factors: Mapping[str, float]) -> Path:
    """A SavedModel of TensorFlow 1 with a graph for each tag (``a,b`` for two): Y = X times its factor."""
    builder = v1.saved_model.Builder(str(folder))
    for number, (tags, factor) in enumerate(factors.items()):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, (None, 3), name="in")
            weight = v1.get_variable("weight", initializer=np.float32(1.0))
            y = tf.multiply(x * weight, factor, name="out")
            signature = v1.saved_model.predict_signature_def({"X": x}, {"Y": y})
            session.run(v1.global_variables_initializer())
            signatures = {"serving_default": signature}
            if number == 0:
                builder.add_meta_graph_and_variables(session, tags.split(","), signatures)
            else:
                builder.add_meta_graph(tags.split(","), signatures)
    builder.save()
    return folder
