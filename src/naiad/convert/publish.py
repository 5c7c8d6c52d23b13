"""A converted model in a model repository: its files, configuration, warm-up and labels."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from naiad.convert.errors import ConvertError
from naiad.convert.formats import FORMATS
from naiad.convert.model_config import WARMUP, Batching, config_text, configured, warmup_arrays
from naiad.convert.results import FormatResult
from naiad.convert.samples import Sample
from naiad.convert.signature import NamedTensor, SourceSignature, identifier


def config_of(
    result: FormatResult,
    signature: SourceSignature,
    name: str,
    batching: Batching,
    *,
    labels: str = "",
    sample: Sample | None = None,
) -> str:
    """The config.pbtxt of a format; with a sample it has a warm-up."""
    assert result.made is not None, "only what was made is published"
    target = FORMATS[result.target]
    inputs = configured(result.made["inputs"], [_as_json(result, tensor) for tensor in signature.inputs])
    seen = (result.verified or {}).get("outputs") or [
        {"dtype": tensor.dtype, "shape": tensor.shape} for tensor in signature.outputs
    ]
    if result.target == "treelite":
        seen = [{**seen[0], "dtype": "float32"}]
    parameters = {}
    if result.target == "treelite" and len(seen[0]["shape"]) == 2 and seen[0]["shape"][1] > 1:
        parameters["predict_proba"] = "true"
    if target.backend == "openvino":
        # As it was verified. On processors with instructions for BF16 that would be the default.
        parameters["HINT_BF16"] = "NO"
    outputs = configured(result.made["outputs"], seen)
    warmup = None
    if sample is not None:
        warmup = {key: array.shape for key, array in warmup_arrays(sample, inputs, batching).items()}
    return config_text(name, target, inputs, outputs, batching, labels=labels, warmup=warmup, parameters=parameters)


def publish(
    result: FormatResult,
    signature: SourceSignature,
    repository: Path,
    name: str,
    batching: Batching,
    sample: Sample,
    labels: Path | None = None,
    version: int = 1,
) -> Path:
    """Put a format into a repository as a new version of the model ``name``; return the model's folder.

    The folder is written beside its place and moved there as a whole.

    Raises:
        ConvertError: there is such a version already, or the disk refuses.
    """
    assert result.made is not None, "only what was made is published"
    if not FORMATS[result.target].is_served:
        raise ConvertError(f"{result.target} is not served by Naiad; choose another format (--formats)")
    folder = repository / name
    if folder.exists():
        raise ConvertError(f"there is a model {folder} already; remove it, or give another --name")
    warmup = sample if can_warm_up(result, signature) else None
    text = config_of(result, signature, name, batching, labels=labels.name if labels else "", sample=warmup)
    try:
        repository.mkdir(parents=True, exist_ok=True)
        # Within the repository, so that the move is one step; a name with a dot is no model.
        with tempfile.TemporaryDirectory(prefix=".publishing-", dir=repository) as made:
            place = Path(made) / name
            shutil.copytree(Path(result.made["file"]).parent, place / str(version), symlinks=False)
            (place / "config.pbtxt").write_text(text, encoding="utf-8")
            if labels:
                shutil.copyfile(labels, place / labels.name)
            if warmup is not None:
                _write_warmup(place, result, signature, batching, warmup)
            place.rename(folder)
    except OSError as error:
        raise ConvertError(f"{folder} cannot be written: {_first_reason(error)}") from None
    return folder


def can_warm_up(result: FormatResult, signature: SourceSignature) -> bool:
    """Whether a sample's bytes can be kept as they are, and the model is one that is slower at first."""
    return result.target != "python" and all(tensor.dtype != "str" for tensor in signature.inputs)


def link_for_measuring(
    result: FormatResult, signature: SourceSignature, repository: Path, name: str, largest: int
) -> None:
    """A repository with one model, whose version is a link to the files.

    It has dynamic batching, whose cost a published model has too, without a delay.
    """
    assert result.made is not None, "only what was made is measured"
    place = repository / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    os.symlink(Path(result.made["file"]).parent.resolve(), place / "1")
    batching = Batching(largest if signature.is_batching else 0)
    (place / "config.pbtxt").write_text(config_of(result, signature, name, batching), encoding="utf-8")


def _first_reason(error: OSError) -> str:
    """Of a tree that could not be copied, why its first file could not."""
    failures = error.args[0] if isinstance(error, shutil.Error) and error.args else ()
    return str(failures[0][2]) if isinstance(failures, list) and failures else str(error)


def _as_json(result: FormatResult, tensor: NamedTensor) -> dict[str, object]:
    dtype = "float32" if result.target == "treelite" else tensor.dtype
    return {"name": tensor.name, "dtype": dtype, "shape": tensor.shape}


def _write_warmup(
    place: Path, result: FormatResult, signature: SourceSignature, batching: Batching, sample: Sample
) -> None:
    assert result.made is not None, "only what was made is published"
    inputs = configured(result.made["inputs"], [_as_json(result, tensor) for tensor in signature.inputs])
    (place / WARMUP).mkdir()
    for (name, array), tensor in zip(warmup_arrays(sample, inputs, batching).items(), inputs, strict=True):
        (place / WARMUP / identifier(name)).write_bytes(np.ascontiguousarray(array, dtype=tensor.dtype).tobytes())
