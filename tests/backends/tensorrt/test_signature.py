"""Tensors that are TYPE_INT64 in the configuration and INT32 in the plan, and the pinned memory that is counted."""

from __future__ import annotations

import pytest

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor, check_signature
from naiad.backends.tensorrt.signature import narrowed
from naiad.errors import ModelLoadError
from naiad.gpus.pinned import PinnedPool
from naiad.tensor.dtypes import BY_WIRE
from support.backend_contract import spec

PLAN = GraphSignature(
    (ModelTensor("X", BY_WIRE["INT32"], "INT32", (-1, 4)), ModelTensor("Y", BY_WIRE["INT32"], "INT32", (-1, 4))),
    (ModelTensor("Z", BY_WIRE["INT32"], "INT32", (-1, 4)),),
)
CONFIG = """backend: "tensorrt" max_batch_size: 8
input [ { name: "X" data_type: TYPE_INT64 dims: [ 4 ] }, { name: "Y" data_type: TYPE_INT32 dims: [ 4 ] } ]
output [ { name: "Z" data_type: %s dims: [ 4 ] } ]
"""


def test_tensors_of_64_bits_fit_a_plan_of_32() -> None:
    model = spec(CONFIG % "TYPE_INT64")
    graph, names = narrowed(model, PLAN)
    assert names == {"X", "Z"}
    assert [t.dtype for t in (*graph.inputs, *graph.outputs)] == [BY_WIRE[w] for w in ("INT64", "INT32", "INT64")]
    check_signature(model, graph.inputs, graph.outputs)


def test_other_types_do_not() -> None:
    model = spec(CONFIG % "TYPE_FP32")
    graph, names = narrowed(model, PLAN)
    assert names == {"X"}
    with pytest.raises(ModelLoadError, match="says TYPE_FP32, the model has TYPE_INT32"):
        check_signature(model, graph.inputs, graph.outputs)


def test_pinned_memory_stays_below_its_limit() -> None:
    pool = PinnedPool()
    assert pool.take(60, 100) and not pool.take(41, 100) and pool.take(40, 100)
    pool.release(60)
    assert pool.used_bytes == 40 and pool.take(60, 100)
