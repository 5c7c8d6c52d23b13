"""ONNX with weights of 8 bits, by ONNX Runtime's own quantisation."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from naiad.convert.samples import Sample, load_samples


def dynamic(parent: str, file: str, names: dict[str, Any]) -> dict[str, Any]:
    """Weights of 8 bits; activations are quantised as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _prepared(parent) as prepared:
        quantize_dynamic(prepared, file, weight_type=QuantType.QInt8, use_external_data_format=_is_large(parent))
    return {"file": file, "inputs": names["inputs"], "outputs": names["outputs"], "notes": []}


def static(parent: str, samples: str, file: str, names: dict[str, Any]) -> dict[str, Any]:
    """Weights and activations of 8 bits, with ranges from the samples."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples = _named(load_samples(samples), names["inputs"])

        def get_next(self) -> Sample | None:
            return next(self.samples, None)

    with _prepared(parent) as prepared:
        quantize_static(
            prepared,
            file,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            # Two of 8 bits are added in 16, which overflow on processors without VNNI.
            reduce_range=True,
            use_external_data_format=_is_large(parent),
        )
    notes = ["ranges are those of the samples: give those that the model will see"]
    return {"file": file, "inputs": names["inputs"], "outputs": names["outputs"], "notes": notes}


def _named(samples: list[Sample], names: list[str]) -> Iterator[Sample]:
    for sample in samples:
        yield dict(zip(names, sample.values(), strict=True))


@contextlib.contextmanager
def _prepared(parent: str) -> Iterator[str]:
    """The model with inferred shapes and folded constants, as the quantisers want it; else as it is."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    # In the step's own folder: the model's is published as it is.
    with tempfile.TemporaryDirectory(prefix="prepared-", dir=".") as folder:
        prepared = str(Path(folder).resolve() / "prepared.onnx")
        try:
            quant_pre_process(parent, prepared, save_as_external_data=_is_large(parent))
        except Exception as error:
            print(f"not prepared: {error}", flush=True)  # noqa: T201  # in the step's log
            prepared = parent
        yield prepared


def _is_large(parent: str) -> bool:
    return sum(file.stat().st_size for file in Path(parent).parent.glob("*") if file.is_file()) > 1_800_000_000
