"""What all exports of torch share: the module with one flat signature, an example, and which dimensions vary."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.outputs import flat_tensors
from naiad.convert.samples import Sample, load_samples
from naiad.convert.signature import SourceSignature, identifier
from naiad.convert.source import SourceKind, load_source, torch_tensors


def torch_program(model: str) -> Any:
    """The module of a source, or its exported program.

    Raises:
        StepError: the source is of another framework.
    """
    source = load_source(model)
    if source.kind not in (SourceKind.TORCH, SourceKind.EXPORTED, SourceKind.TORCHSCRIPT):
        raise StepError(f"the model is of {source.kind}, not of torch")
    return source.model


def flat_module(module: Any, signature: SourceSignature) -> Any:
    """A module whose forward takes the inputs by their names and returns a tensor or a tuple of tensors."""
    import torch

    names = [identifier(tensor.name) for tensor in signature.inputs]
    by_name = signature.by_name

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: Any) -> Any:
            if by_name:
                returned = self.module(**dict(zip(names, inputs, strict=True)))
            else:
                returned = self.module(*inputs)
            found = tuple(flat_tensors(returned).values())
            return found[0] if len(found) == 1 else found

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", kind), *(inspect.Parameter(name, kind) for name in names)]
    # Exporters read the names of the inputs here.
    Flat.forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return Flat().eval()


def example(samples: str, signature: SourceSignature) -> tuple[Any, ...]:
    """The inputs that an exporter traces: of the samples whose varying dimensions are above 1, the smallest."""
    return tuple(torch_tensors(example_sample(samples, signature)))


def example_sample(samples: str, signature: SourceSignature) -> Sample:
    """The sample of ``example``, as arrays. Exporters would fix a dimension of 1."""

    def rank(sample: Sample) -> tuple[int, int]:
        fixed = sum(
            size < 2
            for tensor in signature.inputs
            for size, declared in zip(sample[tensor.name].shape, tensor.shape, strict=True)
            if declared == -1
        )
        return fixed, sum(array.size for array in sample.values())

    return min(load_samples(samples), key=rank)


def dynamic_shapes(signature: SourceSignature) -> tuple[dict[int, Any], ...] | None:
    """For ``torch.export``: the dimensions that vary, for each input; None when none does."""
    from torch.export import Dim

    shapes = tuple(
        {axis: Dim.AUTO for axis, size in enumerate(tensor.shape) if size == -1} for tensor in signature.inputs
    )
    return shapes if any(shapes) else None


def dynamic_axes(signature: SourceSignature) -> dict[str, dict[int, str]]:
    """For the older exporter of ONNX: names of the dimensions that vary."""
    return {
        tensor.name: {
            axis: "batch" if axis == 0 and signature.is_batching else f"{identifier(tensor.name)}_{axis}"
            for axis, size in enumerate(tensor.shape)
            if size == -1
        }
        for tensor in (*signature.inputs, *signature.outputs)
        if -1 in tensor.shape
    }


def weight_bytes(module: Any) -> int:
    """The size of a module's parameters and buffers."""
    tensors = [*module.parameters(), *module.buffers()] if hasattr(module, "parameters") else []
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def input_names(signature: SourceSignature) -> list[str]:
    """The inputs' names."""
    return [tensor.name for tensor in signature.inputs]


def output_names(signature: SourceSignature) -> list[str]:
    """The outputs' names."""
    return [tensor.name for tensor in signature.outputs]


def rows_of(sample: Sample) -> int:
    """The size of the first axis."""
    first: np.ndarray[Any, Any] = next(iter(sample.values()))
    return int(first.shape[0])
