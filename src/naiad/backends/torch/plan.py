"""The plan of calls for models with a ``forward`` of named arguments: TorchScript and ``nn.Module``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.backends.torch.instance import CallPlan
from naiad.backends.torch.signature import bind_inputs, bind_outputs
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.backends.shared.parameters import ParameterReader
    from naiad.backends.torch.session import MemoryEffects
    from naiad.backends.torch.signature import ForwardSchema
    from naiad.config.spec import ModelSpec, TensorSpec

_UNSUPPORTED = ("UINT16", "UINT32", "UINT64")


def call_plan(spec: ModelSpec, schema: ForwardSchema, effects: MemoryEffects, reader: ParameterReader) -> CallPlan:
    """How a model with this ``forward`` is called.

    Raises:
        ModelLoadError: the tensors of the configuration do not fit it; the text shows both.
    """
    if not spec.inputs or not spec.outputs:
        raise no_tensors(spec.name, schema)
    _check_tensors(spec, schema.kind)
    tensors = (*spec.inputs.values(), *spec.outputs.values())
    arguments = bind_inputs(spec, schema)
    return CallPlan(
        arguments=arguments,
        positional=tuple(argument for _, argument in arguments) == schema.arguments[: len(arguments)],
        places=bind_outputs(spec, schema),
        strings=frozenset(t.name for t in tensors if t.dtype.is_bytes),
        rows=spec.max_batch_size > 0,
        returns_strings=schema.returns_strings,
        effects=effects,
        inference_mode=reader.boolean("INFERENCE_MODE", True),
        optimized=not reader.boolean("DISABLE_OPTIMIZED_EXECUTION", False),
        clean_cache=reader.boolean("ENABLE_CACHE_CLEANING", False),
        cudnn=not reader.boolean("DISABLE_CUDNN", False),
    )


def no_tensors(model: str, schema: ForwardSchema, alone: Path | None = None) -> ModelLoadError:
    """The error for a configuration that leaves out what this kind of model does not say itself.

    Args:
        alone: the file of a model that is served without a repository, and so without a configuration.
    """
    names = [a.name for a in schema.arguments] or ["INPUT__0"]
    inputs = ", ".join(f'{{ name: "{n}" data_type: TYPE_FP32 dims: [ -1 ] }}' for n in names)
    where = "" if alone is None else f"move {alone} to models/{model}/1/model.pt, and into models/{model}/config.pbtxt "
    return ModelLoadError(
        f"model '{model}': the configuration must list the inputs and outputs, as {schema.kind} does not say their "
        f"types and shapes; {where}write, with the right data_type and dims: input [ {inputs} ] "
        f'output [ {{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ -1 ] }} ]'
    )


def _check_tensors(spec: ModelSpec, kind: str) -> None:
    for tensor in (*spec.inputs.values(), *spec.outputs.values()):
        if tensor.dtype.wire in _UNSUPPORTED:
            role = "input" if tensor.name in spec.inputs else "output"
            raise ModelLoadError(
                f"unsupported datatype {tensor.dtype.config} for {role} '{tensor.name}' for model '{spec.name}': "
                f"{kind} cannot compute with it; use a signed type of at least that size, such as TYPE_INT64"
            )
        if tensor.dtype.is_bytes and not _is_string_list(spec, tensor):
            raise ModelLoadError(
                f"model '{spec.name}': tensor '{tensor.name}' is TYPE_STRING with dims {list(tensor.dims)}; "
                f"{kind} has lists of strings only, so write dims: [ {'1' if spec.max_batch_size else '-1'} ]"
            )


def _is_string_list(spec: ModelSpec, tensor: TensorSpec) -> bool:
    return tensor.dims == (1,) if spec.max_batch_size else len(tensor.dims) == 1
