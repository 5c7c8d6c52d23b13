"""Keras as the contract of framework backends wants it. Importing this needs Keras, on the library of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from naiad.backend_api.backend import Arrays
from naiad.tensor.dtypes import BY_WIRE
from support.framework import Framework, Pair, Signature, Tensor, damaged
from support.keras_models import keras, predicted, save, tanh_network

WIRE_TYPES = ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64")
DTYPES = {wire: BY_WIRE[wire].numpy.name for wire in WIRE_TYPES}
NO_ARCHIVE = r"model\.keras is no archive of Keras 3"


def network(path: Path, seed: int, hidden: int) -> Signature:
    save(path, tanh_network(seed, hidden))
    return Signature((Tensor("X", "FP32", (4,)),), (Tensor("Y", "FP32", (3,)),))


@cache
def model_of(path: Path) -> Any:
    return keras.saving.load_model(path, compile=False)


def run(path: Path, inputs: Arrays) -> Arrays:
    return {"Y": predicted(model_of(path), inputs["X"])}


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    inputs = [keras.Input((None,), name=pair.input, dtype=DTYPES[pair.wire]) for pair in pairs]
    outputs = [
        # Otherwise numbers of 16 and 64 bits become those of 32.
        keras.layers.Identity(name=pair.output, dtype=DTYPES[pair.wire] if pair.wire[:2] == "FP" else None)(tensor)
        for pair, tensor in zip(pairs, inputs, strict=True)
    ]
    save(path, keras.Model(inputs, outputs))
    made = ([Tensor(getattr(p, role), p.wire, (-1,)) for p in pairs] for role in ("input", "output"))
    given, returned = made
    return Signature(tuple(given), tuple(returned))


def scalar(path: Path) -> Signature:
    x = keras.Input((), name="X")
    save(path, keras.Model(x, keras.layers.Add(name="Y")([x, x])))
    more = "reshape { shape: [ ] }"
    return Signature((Tensor("X", "FP32", (1,), more),), (Tensor("Y", "FP32", (1,), more),))


def ragged(path: Path) -> None:
    x, i = keras.Input((), name="X"), keras.Input((), name="I", dtype="int32")
    y = keras.layers.Add(name="Y")([x, x])
    c = keras.layers.Reshape((1,), name="C", dtype="int32")(i)
    save(path, keras.Model([x, i], [y, c]))


def failing(path: Path) -> Signature:
    index = keras.Input((1,), name="INDEX", dtype="int64")
    table = keras.layers.Embedding(4, 1)
    model = keras.Model(index, keras.layers.Reshape((1,), name="VALUE")(table(index)))
    table.set_weights([np.array([[10], [11], [12], [13]], np.float32)])
    save(path, model)
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


def keras_framework(**changes: Any) -> Framework:
    """The description of Keras on torch, with these changes."""
    found = Framework(
        name="keras",
        config='backend: "keras"',
        file="model.keras",
        network=network,
        run=run,
        broken=damaged(missing=r"model\.keras does not exist", empty=NO_ARCHIVE, garbage=NO_ARCHIVE, cut=NO_ARCHIVE),
        tolerance=1e-6,
        tolerance_reason="torch adds up in another order on another number of threads",
        mismatches={
            "name": "unexpected inference input 'wrong', allowed inputs are: X",
            "datatype": "says TYPE_INT32, the model has TYPE_FP32",
            "dims": "axis 1 is 5 where the model has 4",
        },
        identity=identity,
        datatypes=(tuple(DTYPES),),
        odd_names=("größe", "a b", "0", "_.-~", "名"),
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure="keras: IndexError: index out of range in self .in Embedding",
        # A shared process has them with one start.
        brief_modes=("process",),
        others_not_in=("process",),
        reloads=(10, 30),
        reloads_shared=False,
    )
    return replace(found, **changes)
