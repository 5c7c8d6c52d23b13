"""The first step: run the source over the loader, keep its outputs as the reference, and find the signature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.outputs import Arrays, as_arrays, check_finite
from naiad.convert.samples import Sample, load_samples, read_samples, with_rows, write_samples
from naiad.convert.signature import SourceSignature, described
from naiad.convert.source import SourceKind, SourceModel, load_source, named_arguments


def describe(
    model: str,
    data: str,
    folder: str,
    count: int,
    batch: int,
    batching: bool | None,
    largest: int,
    input_names: list[str],
    output_names: list[str],
) -> dict[str, Any]:
    """Write ``samples`` and ``reference`` into ``folder``; return what the source is.

    With a batch axis, one more sample has one row and another has ``largest`` rows, so that both ends are verified.

    Args:
        data: as for ``read_samples``; empty when ``samples`` has been written already.
    """
    place = Path(folder)
    samples = read_samples(data, count, batch, input_names) if data else load_samples(place / "samples")
    source = load_source(model)
    samples = [_named(source, sample) for sample in samples]
    outputs = [_run(source, sample, index, output_names) for index, sample in enumerate(samples)]
    _check_same(outputs)
    is_batching = _is_batching(source, samples, outputs, output_names) if batching is None else batching
    shapes = described(samples, is_batching)
    if is_batching:
        for rows in sorted({1, largest}):
            extreme = _with_rows(samples, rows)
            if extreme is not None:
                samples.append(extreme)
                outputs.append(_run(source, extreme, len(samples) - 1, output_names))
    write_samples(samples, place / "samples")
    write_samples(outputs, place / "reference")
    by_name = source.kind is SourceKind.TORCH and named_arguments(source.model, list(samples[0]))
    signature = SourceSignature(shapes, described(outputs, is_batching), is_batching, by_name)
    again = _run(source, samples[0], 0, output_names)
    return {
        "kind": str(source.kind),
        "signature": signature.as_json(),
        "precision": _precision(source),
        "samples": len(samples),
        "is_random": any(not np.array_equal(again[name], outputs[0][name]) for name in again),
    }


def _named(source: SourceModel, sample: Sample) -> Sample:
    """With the names that the model itself has for its inputs, where samples came without names."""
    if not all(name.startswith("input__") for name in sample):
        _check_names(source, sample)
        return sample
    own: list[str] = []
    if source.kind is SourceKind.ONNX:
        own = [one.name for one in source.model.get_inputs()]
    elif source.kind is SourceKind.SAVEDMODEL:
        own = list(source.model.structured_input_signature[1])
    elif source.kind is SourceKind.KERAS:
        own = [str(one.name) for one in source.model.inputs]
    return dict(zip(own, sample.values(), strict=True)) if len(own) == len(sample) else sample


def _check_names(source: SourceModel, sample: Sample) -> None:
    """Refuse names that an ONNX file does not have: its conversions keep its names, and could not be verified."""
    if source.kind is not SourceKind.ONNX:
        return
    own = {one.name for one in source.model.get_inputs()}
    if set(sample) != own:
        raise StepError(
            f"the samples have the inputs {', '.join(sorted(sample))}, and the model has {', '.join(sorted(own))}",
            "give the arrays of --data the names of the model's inputs",
        )


def _run(source: SourceModel, sample: Sample, index: int, names: list[str]) -> Arrays:
    shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in sample.items())
    try:
        outputs = as_arrays(source.call(sample), names)
    except StepError:
        raise
    except Exception as error:
        raise StepError(
            f"the model itself fails for sample {index} ({shapes}): {type(error).__name__}: {error}",
            "give samples that it takes: datatypes, shapes, and names or order of the inputs",
        ) from error
    check_finite(outputs, f"the model's own outputs for sample {index}")
    return outputs


def _check_same(outputs: list[Arrays]) -> None:
    first = outputs[0]
    for index, found in enumerate(outputs):
        same = list(found) == list(first) and all(found[n].ndim == first[n].ndim for n in found)
        if not same:
            raise StepError(
                f"the model returns {_shown(found)} for sample {index}, and {_shown(first)} for sample 0",
                "let it return the same tensors, with as many dimensions, for every sample",
            )


def _shown(outputs: Arrays) -> str:
    return ", ".join(f"{name}{list(array.shape)}" for name, array in outputs.items())


def _is_batching(source: SourceModel, samples: list[Sample], outputs: list[Arrays], names: list[str]) -> bool:
    """Whether every tensor has one first axis, and twice the rows give twice the outputs' rows."""
    for sample, found in zip(samples, outputs, strict=True):
        sizes = {array.shape[0] if array.ndim else -1 for array in (*sample.values(), *found.values())}
        if len(sizes) != 1 or -1 in sizes:
            return False
    doubled = {name: np.concatenate([array, array]) for name, array in samples[0].items()}
    rows = next(iter(doubled.values())).shape[0]
    try:
        found = as_arrays(source.call(doubled), names)
    except Exception:
        return False
    return all(array.ndim > 0 and array.shape[0] == rows for array in found.values())


def _with_rows(samples: list[Sample], rows: int) -> Sample | None:
    """A sample of so many rows, made of those that have the shape of the first; None when there is one already."""
    if any(next(iter(sample.values())).shape[0] == rows for sample in samples):
        return None
    return with_rows(samples, rows)


def _precision(source: SourceModel) -> str:
    """Of the source's weights: half precision is no worse in another format than it is in the source."""
    if source.kind is not SourceKind.TORCH:
        return "fp32"
    kinds = {str(parameter.dtype) for parameter in source.model.parameters()}
    return "bf16" if "torch.bfloat16" in kinds else "fp16" if "torch.float16" in kinds else "fp32"
