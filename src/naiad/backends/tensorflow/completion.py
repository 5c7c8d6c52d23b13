"""Completing a configuration from the signature of a SavedModel; a GraphDef has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from naiad.backends.shared.completion import GraphSignature, complete, complete_batching
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
    if config.input and config.output:
        # The reference completes the batch size of such a configuration, too.
        if graph.can_batch:
            complete_batching(config, graph, default_max_batch_size)
        return
    if config.max_batch_size > 0 and not graph.can_batch:
        raise ConfigError(
            f"unable to autofill for '{config.name}', configuration specified max-batch {config.max_batch_size} but "
            f"model signature does not support batching"
        )
    _check_ranks(config, signature)
    complete(config, graph, default_max_batch_size)


def _check_ranks(config: Any, signature: ModelSignature) -> None:
    """Refuse to guess the dims of a tensor whose rank the model leaves open."""
    for role, entries, tensors in (
        ("input", config.input, signature.inputs),
        ("output", config.output, signature.outputs),
    ):
        if entries:
            continue
        for name, found in tensors.items():
            if found.rank is None and found.tensor.dtype is not None:
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
