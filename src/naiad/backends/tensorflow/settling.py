"""The first runs of a model, before it is ready."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from naiad.backends.tensorflow.instance import FeedPlan, GraphCalls
    from naiad.config.spec import ModelSpec, TensorSpec

log = logging.getLogger("naiad")

# XLA compiles what it sees for the second time.
_COMPILING_RUNS: Final = 2
# After ten compilations that few runs used, TensorFlow compiles a part of a graph for no further shape.
_MOST_SIZES: Final = 12


def settle(calls: GraphCalls, spec: ModelSpec, plan: FeedPlan, compiles: bool) -> None:
    """Run on zeros, so that no request waits for kernels to be made or, with XLA, for a batch size to be compiled.

    Open axes get the size 1. A model that refuses zeros is left to its first requests, and so is one whose batches are
    not plain rows.
    """
    if spec.assembly is not None:
        return
    try:
        for rows in _batch_sizes(spec, compiles):
            zeros = [_zeros(spec.inputs[name], rows, name in plan.scalars) for name in spec.inputs]
            for _ in range(_COMPILING_RUNS if compiles else 1):
                calls.whole(*zeros)
    except Exception as error:
        log.info("model '%s' does not run on zeros and prepares itself in its first requests: %s", spec.name, error)


def _batch_sizes(spec: ModelSpec, compiles: bool) -> Iterable[int]:
    """The numbers of rows to run, the most important ones first; 0 for a model without a batch axis."""
    most = spec.max_batch_size
    if not most or not compiles:
        return (min(most, 1),)
    preferred = spec.batching.preferred_batch_sizes if spec.batching is not None else ()
    doubled = (1 << bits for bits in range(most.bit_length()))
    sizes = (1, most, *preferred, *doubled, *range(1, min(most, _MOST_SIZES) + 1))
    return list(dict.fromkeys(sizes))[:_MOST_SIZES]


def _zeros(tensor: TensorSpec, rows: int, is_scalar: bool) -> np.ndarray[Any, Any]:
    dims = () if is_scalar else tensor.dims if tensor.reshape is None else tensor.reshape
    shape = tuple(1 if dim == -1 else dim for dim in dims)
    shape = (rows, *shape) if rows else shape
    if tensor.dtype.is_bytes:
        return np.full(shape, b"", np.object_)
    return np.zeros(shape, tensor.dtype.numpy)
