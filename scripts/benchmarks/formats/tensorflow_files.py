"""SavedModels of TensorFlow: Keras' own ResNet50 with its random weights, and the dense network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .form import Array, Caller, Format
from .subjects import SUBJECTS

WIDTH, LAYERS = 512, 10


def write_saved_model(network: str, path: Path) -> None:
    """With a signature of input x and output y."""
    tensorflow, keras = _frameworks()
    (sample,) = (s.sample(SAVED_MODEL) for s in SUBJECTS if s.name == network)
    keras.utils.set_random_seed(5)
    model = keras.applications.ResNet50(weights=None) if network == "resnet50" else _dense(keras)

    def serve(x: Any) -> Any:
        return {"y": model(x, training=False)}

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", serve, [tensorflow.TensorSpec(sample.shape, "float32", "x")])
    archive.write_out(str(path), verbose=False)


def load_saved_model(path: Path, threads: int) -> Caller:
    """The default signature, one operator at a time."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    loaded = tensorflow.saved_model.load(str(path))
    function = loaded.signatures["serving_default"]

    def call(x: Array) -> Array:
        answer: Array = function(x=tensorflow.constant(x))["y"].numpy()
        return answer

    # The module owns the variables, the function only refers to them.
    call.module = loaded  # type: ignore[attr-defined]
    return call


def _frameworks() -> tuple[Any, Any]:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import tensorflow

    return tensorflow, keras


def _dense(keras: Any) -> Any:
    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    return keras.Sequential([keras.Input((WIDTH,)), *layers])


SAVED_MODEL = Format(
    "tensorflow",
    needs=("tensorflow", "naiad.backends.tensorflow.backend"),
    file="model.savedmodel",
    backend="tensorflow",
    threads="TF_NUM_INTRA_THREADS",
    networks=("resnet50", "dense"),
    write=write_saved_model,
    load=load_saved_model,
    channels_last=True,
    fields=lambda network: 'platform: "tensorflow_savedmodel"',
    note="Keras' ResNet50, other random weights",
)
