"""The specification that a backend gets for a model whose batches are more than joined rows."""

from __future__ import annotations

from dataclasses import replace

from naiad.config.assembly import BatchAssembly, BatchInputSpec, PadSpec
from naiad.config.spec import ModelSpec, TensorSpec

_WHOLE = BatchAssembly(is_whole=True)


def as_backend_sees(spec: ModelSpec) -> ModelSpec:
    """``spec`` with the tensors that the model itself has: ragged inputs and scattered outputs are one row of elements,
    and inputs that the server makes come behind those of callers. ``spec`` itself where that makes no difference."""
    found = spec.assembly
    if found is None or found.is_whole:
        return spec
    inputs = {name: _flat(t) if name in found.ragged else t for name, t in spec.inputs.items()}
    inputs.update((made.name, _made(made, spec)) for made in found.made)
    inputs.update((pad.mask, _mask(pad)) for pad in found.pads.values() if pad.mask)
    outputs = {name: _flat(t) if name in found.scattered else t for name, t in spec.outputs.items()}
    return replace(spec, inputs=inputs, outputs=outputs, assembly=_WHOLE)


def _flat(tensor: TensorSpec) -> TensorSpec:
    return replace(tensor, dims=(), shape=(-1,), reshape=None, allow_ragged_batch=True)


def _made(made: BatchInputSpec, spec: ModelSpec) -> TensorSpec:
    dims = (len(spec.inputs[made.source].dims),) if made.kind == "BATCH_ITEM_SHAPE" else ()
    return TensorSpec(made.name, made.dtype, dims, (-1, *dims), allow_ragged_batch=True)


def _mask(pad: PadSpec) -> TensorSpec:
    if pad.mask_dtype is None:
        raise ValueError(f"mask '{pad.mask}' has no datatype")
    dims = (-1,) * len(pad.dims)
    return TensorSpec(pad.mask, pad.mask_dtype, dims, (-1, *dims))
