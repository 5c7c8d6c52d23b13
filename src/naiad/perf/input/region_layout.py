"""Where the tensors of all steps lie in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from naiad.perf.input.element_bytes import datatype_of, element_count
from naiad.perf.input.error import PerfInputError
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, RegionLayout, Step, StepStream, TensorDescription, TensorValue
from naiad.shared_memory.region import RegionRef

_ALIGNMENT: Final = 64
"""Tensors begin at multiples of it, as most memory for tensors does."""


def lay_out(settings: InputSettings, model: ModelDescription, streams: Sequence[StepStream], name: str) -> RegionLayout:
    """The layout of the inputs of all steps, and of the outputs of a request.

    Inputs with the same data object share a place. An input without data stays in the request, since no region may be
    empty. An output of variable size has room for ``--output-shared-memory-size`` bytes for each row of the batch.

    Args:
        name: begins the names of the regions; no other client of the server may use it.

    Raises:
        PerfInputError: responses are to be compared, which their shared places do not allow.
    """
    if any(step.expected for stream in streams for step in stream.steps):
        raise PerfInputError(
            f"found expected outputs with --shared-memory={settings.shared_memory}, where requests in flight write "
            "their outputs to the same place: leave out validation_data, or use --shared-memory=none"
        )
    inputs = _Region(f"{name}-inputs")
    placed = tuple(StepStream(tuple(_placed(step, inputs) for step in stream.steps)) for stream in streams)
    outputs = _Region(f"{name}-outputs")
    places = {tensor.name: outputs.take(_output_bytes(tensor, settings, model)) for tensor in model.outputs}
    return RegionLayout(
        placed, places, inputs.name, inputs.size, outputs.name, outputs.size, tuple(inputs.writes.values())
    )


class _Region:
    """A region that grows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.writes: dict[int, tuple[int, bytes]] = {}

    def take(self, byte_size: int) -> RegionRef:
        """The next free place of ``byte_size`` bytes."""
        found = RegionRef(self.name, self.size, byte_size)
        self.size += -(-byte_size // _ALIGNMENT) * _ALIGNMENT
        return found

    def put(self, data: bytes) -> RegionRef:
        """The place of some data."""
        offset, _ = self.writes.get(id(data)) or self.writes.setdefault(id(data), (self.take(len(data)).offset, data))
        return RegionRef(self.name, offset, len(data))


def _placed(step: Step, region: _Region) -> Step:
    return replace(step, inputs=tuple(_placed_value(value, region) for value in step.inputs))


def _placed_value(value: TensorValue, region: _Region) -> TensorValue:
    return replace(value, region=region.put(value.data)) if value.data else value


def _output_bytes(tensor: TensorDescription, settings: InputSettings, model: ModelDescription) -> int:
    datatype = datatype_of(tensor)
    rows = settings.batch_size if model.max_batch_size else 1
    if datatype.is_bytes or -1 in tensor.shape:
        return settings.output_shared_memory_size * rows
    return element_count(tensor.shape) * datatype.itemsize * rows
