"""Completing a configuration from the signature of a SavedModel; a GraphDef has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from naiad.backends.shared.completion import (
    GraphSignature,
    add_tensors,
    complete,
    complete_batching,
    complete_tensor,
    hidden_tensors,
)
from naiad.errors import ConfigError, ModelLoadError

if TYPE_CHECKING:
    from naiad.backends.shared.signature import ModelTensor
    from naiad.backends.tensorflow.signature import ModelSignature


def complete_from(config: Any, signature: ModelSignature, default_max_batch_size: int) -> None:
    """Fill max_batch_size, dynamic_batching, input and output of a ``ModelConfig`` message where they are open.

    Source: auto-complete of the reference's tensorflow backend.

    Raises:
        ConfigError: the configuration asks for batches that the signature does not allow, or leaves out a tensor whose
            rank the model leaves open.
    """
    graph = GraphSignature(signature.input_tensors, signature.output_tensors)
    _check_ranks(config, signature)
    if config.input and config.output:
        # The reference completes the batch size of such a configuration, too.
        if graph.can_batch:
            complete_batching(config, graph, default_max_batch_size)
    else:
        if config.max_batch_size > 0 and not graph.can_batch:
            raise ConfigError(
                f"unable to autofill for '{config.name}', configuration specified max-batch {config.max_batch_size} "
                f"but model signature does not support batching"
            )
        complete(config, graph, default_max_batch_size)
    _complete_listed(config, graph)


def _complete_listed(config: Any, graph: GraphSignature) -> None:
    """Fill in what listed tensors leave open, and list the inputs that are missing. Other outputs are not served."""
    batching = config.max_batch_size > 0
    for role, entries, tensors in (("input", config.input, graph.inputs), ("output", config.output, graph.outputs)):
        found = {tensor.name: tensor for tensor in tensors}
        for entry in entries:
            if entry.name in found and not (entry.data_type and entry.dims):
                complete_tensor(config.name, role, entry, found[entry.name], batching)
    made = {name for item in config.batch_input for name in item.target_name}
    there = hidden_tensors(config).union(made, (tensor.name for tensor in config.input))
    missing = (tensor for tensor in graph.inputs if tensor.required and tensor.name not in there)
    add_tensors(config.name, "input", config.input, missing, batching)


def _check_ranks(config: Any, signature: ModelSignature) -> None:
    """Refuse to guess the dims of a tensor whose rank the model leaves open."""
    for role, entries, tensors in (
        ("input", config.input, signature.inputs),
        ("output", config.output, signature.outputs),
    ):
        with_dims = {entry.name for entry in entries if entry.dims}
        # Of outputs only the listed ones are served, of inputs all.
        served = {entry.name for entry in entries} if role == "output" and entries else tensors.keys()
        for name, found in tensors.items():
            is_open = name in served and name not in with_dims
            if is_open and found.rank is None and found.tensor.dtype is not None:
                raise ConfigError(
                    f"unable to autofill for '{config.name}': the model leaves the rank of {role} '{name}' open; list "
                    f'the {role}s in the configuration: {role} {{ name: "{name}" '
                    f"data_type: {found.tensor.dtype.config} dims: [ ... ] }}"
                )


def no_tensors(model: str, signature: ModelSignature) -> ModelLoadError:
    """The error for a GraphDef whose configuration lists no inputs or outputs; it has those that there seem to be."""
    inputs = ", ".join(_entry(t) for t in signature.input_tensors)
    outputs = ", ".join(_entry(t) for t in signature.output_tensors)
    return ModelLoadError(
        f"model '{model}': the configuration must list the inputs and outputs, as a GraphDef does not say which of its "
        f"tensors they are; from its placeholders and last operators they seem to be: input [ {inputs} ] output "
        f"[ {outputs} ]"
    )


def _entry(tensor: ModelTensor) -> str:
    data_type = tensor.dtype.config if tensor.dtype else tensor.type_text
    dims = ", ".join(map(str, tensor.shape or ())) or "..."
    return f'{{ name: "{tensor.name}" data_type: {data_type} dims: [ {dims} ] }}'
