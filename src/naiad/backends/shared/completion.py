"""The completion of a configuration from the tensors that the model itself declares."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.backends.shared.signature import ModelTensor
from naiad.errors import ConfigError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = logging.getLogger("naiad")


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """Inputs (those with a default value last, as not required) and outputs of a graph."""

    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]

    @property
    def can_batch(self) -> bool:
        """True when the first axis of every required input and of every output is variable."""
        return all(t.can_batch for t in (*self.inputs, *self.outputs) if t.required)


def complete(config: Any, graph: GraphSignature, default_max_batch_size: int) -> None:
    """Fill max_batch_size, dynamic_batching, input and output of a ``ModelConfig`` message where they are open.

    Source: auto-complete of the reference's backends onnxruntime and openvino. A configuration that lists inputs and
    outputs is complete, so that nothing is added to it, no batching either. One difference: a configuration that lists
    one of the two with the full rank of the graph means a model without a batch dimension, and stays so.
    """
    if (config.input or config.batch_input) and config.output:
        return
    complete_batching(config, graph, default_max_batch_size)
    batching = config.max_batch_size > 0
    hidden = hidden_tensors(config)
    if not config.input:
        # Inputs with a default value are left to configurations that name them.
        given = (t for t in graph.inputs if t.required and t.name not in hidden)
        add_tensors(config.name, "input", config.input, given, batching)
    if not config.output:
        add_tensors(config.name, "output", config.output, (t for t in graph.outputs if t.name not in hidden), batching)


def hidden_tensors(config: Any) -> frozenset[str]:
    """Tensors that clients do not see: controls and states of sequences."""
    section = config.sequence_batching
    states = [name for state in section.state for name in (state.input_name, state.output_name)]
    return frozenset(states).union(control.name for control in section.control_input)


def complete_batching(config: Any, graph: GraphSignature, default: int) -> None:
    """Fill max_batch_size and dynamic_batching where they are open and the graph can batch.

    Raises:
        ConfigError: the configuration has a max_batch_size, and the graph cannot batch.
    """
    if not graph.can_batch:
        if config.max_batch_size > 0:
            raise ConfigError(
                f"autofill failed for model '{config.name}': model does not support batching while non-zero "
                f"max_batch_size is specified"
            )
        return
    if config.max_batch_size == 0 and default > 0 and not _lists_full_shapes(config, graph):
        config.max_batch_size = default
        log.debug(
            "autofilled max_batch_size to %d for model '%s' since batching is supported but no max_batch_size is "
            "specified in its configuration; write max_batch_size there to choose another size",
            default,
            config.name,
        )
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        # Its presence alone, without any field, chooses the batcher.
        config.dynamic_batching.SetInParent()


def _lists_full_shapes(config: Any, graph: GraphSignature) -> bool:
    """True when a configured tensor has as many dims as the graph has axes, so that none is left for the batch."""
    return _any_full(config.input, graph.inputs) or _any_full(config.output, graph.outputs)


def _any_full(configured: Iterable[Any], tensors: Sequence[ModelTensor]) -> bool:
    ranks = {t.name: len(t.shape) for t in tensors if t.shape is not None}
    return any(
        len(item.reshape.shape if item.HasField("reshape") else item.dims) == ranks.get(item.name)
        for item in configured
    )


def add_tensors(model: str, role: str, entries: Any, tensors: Iterable[ModelTensor], batching: bool) -> None:
    """List ``tensors`` in the input or output of a ``ModelConfig`` message.

    Raises:
        ModelLoadError: one has a type that cannot be served.
    """
    for tensor in tensors:
        entry = entries.add()
        entry.name = tensor.name
        complete_tensor(model, role, entry, tensor, batching)


def complete_tensor(model: str, role: str, entry: Any, tensor: ModelTensor, batching: bool) -> None:
    """Fill the datatype and dims of one input or output where they are open.

    Raises:
        ModelLoadError: the tensor has a type that cannot be served.
    """
    if tensor.dtype is None:
        hint = " (scikit-learn: zipmap=False)" if tensor.type_text.startswith("seq(") else ""
        raise ModelLoadError(
            f"model '{model}': {role} '{tensor.name}' is {tensor.type_text}, which cannot be served; list only the "
            f"plain tensors as {role} in the configuration, or export without it{hint}"
        )
    if not entry.data_type:
        types = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type
        entry.data_type = types.values_by_name[tensor.dtype.config].number
    if not entry.dims:
        _fill_dims(entry, tensor.shape or (), batching)


def _fill_dims(entry: Any, shape: tuple[int, ...], batching: bool) -> None:
    """Dims must not be empty: a scalar gets one of size 1, and so does a batch of scalars, reshaped for the model."""
    dims = shape[1:] if batching else shape
    entry.dims.extend(dims or (1,))
    if batching and not dims:
        entry.reshape.SetInParent()
