"""``nav.triton.model_repository``: a model's folder with its files and its configuration."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.config.export import config_pbtxt
from naiad.config.messages import message_class
from naiad.convert.choose import batching_of
from naiad.convert.errors import ConvertError
from naiad.convert.model_config import fill_tensor
from naiad.convert.publish import publish
from naiad.convert.samples import load_samples
from naiad.navigator.converted import Package
from naiad.navigator.exceptions import ModelNavigatorEmptyPackageError
from naiad.navigator.strategies import RuntimeSearchStrategy
from naiad.navigator.triton.configs import SpecializedModelConfig

_KINDS: Final = {"cpu": "KIND_CPU", "gpu": "KIND_GPU", "auto": "KIND_AUTO"}


def add_model(
    model_repository_path: str | Path,
    model_name: str,
    model_path: str | Path,
    config: SpecializedModelConfig,
    model_version: int = 1,
) -> Path:
    """Copy a model's file or folder into a repository, and write its config.pbtxt; return the model's folder.

    Raises:
        ConvertError: there is no such model, or its version is in the repository already.
    """
    source, folder = Path(model_path), Path(model_repository_path) / model_name
    version = folder / str(model_version)
    if not source.exists():
        raise ConvertError(f"there is no {source}")
    if version.exists():
        raise ConvertError(f"there is {version} already; remove it, or give another model_version")
    text = _text(model_name, config)
    try:
        version.mkdir(parents=True)
        place = version / (config.default_model_filename or _file_name(source, config))
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copyfile(source, place)
        (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConvertError(f"{folder} cannot be written: {error}") from None
    return folder


def add_model_from_package(
    model_repository_path: str | Path,
    model_name: str,
    package: Package,
    model_version: int = 1,
    strategies: Sequence[RuntimeSearchStrategy] | None = None,
    response_cache: bool = False,
    warmup: bool = False,
) -> Path:
    """Put the best format of a package into a repository, with measured batching; return the model's folder.

    Raises:
        ModelNavigatorEmptyPackageError: no strategy finds a format.
        ConvertError: the model is in the repository already.
    """
    result = package.get_best_model_status(strategies)
    if result is None or result.measured is None:
        raise ModelNavigatorEmptyPackageError("no format of the package was made, verified and measured")
    sample = load_samples(Path(package.conversion.work) / "samples")[0]
    signature = package.signature
    batching = batching_of(result.measured, signature.is_batching)
    folder = publish(
        result, signature, Path(model_repository_path), model_name, batching, sample, version=model_version
    )
    if response_cache:
        with (folder / "config.pbtxt").open("a", encoding="utf-8") as file:
            file.write("response_cache { enable: true }\n")
    return folder


def _file_name(source: Path, config: SpecializedModelConfig) -> str:
    return source.name if source.suffix == ".pt2" else config.file


def _text(name: str, config: SpecializedModelConfig) -> str:
    message: Any = message_class("ModelConfig")()
    message.name, message.platform, message.backend = name, config.platform, config.backend
    message.max_batch_size = config.max_batch_size if config.batching else 0
    for entries, tensors in ((message.input, config.inputs), (message.output, config.outputs)):
        for tensor in tensors:
            dtype = np.dtype(tensor.dtype if tensor.dtype is not None else np.float32)
            fill_tensor(entries.add(), tensor.name, "str" if dtype.kind in "SUO" else dtype.name, tuple(tensor.shape))
    if config.batching:
        message.dynamic_batching.max_queue_delay_microseconds = config.batcher.max_queue_delay_microseconds
        message.dynamic_batching.preferred_batch_size.extend(config.batcher.preferred_batch_size or ())
    for group in config.instance_groups:
        entry = message.instance_group.add()
        entry.count = group.count or 1
        kind = _KINDS.get(str(group.kind).lower().rpartition("_")[2], "KIND_AUTO")
        entry.kind = type(entry).DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_name[kind].number
    for key, value in config.parameters.items():
        message.parameters[key].string_value = str(value)
    if config.response_cache:
        message.response_cache.enable = True
    if config.default_model_filename:
        message.default_model_filename = config.default_model_filename
    return config_pbtxt(message)
