"""``nav.triton.model_repository``: a model's folder with its files and its configuration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from naiad.convert.choose import batching_of
from naiad.convert.errors import ConvertError, FileMissingError, FileThereError
from naiad.convert.publish import publish
from naiad.convert.samples import load_samples
from naiad.navigator.converted import Package
from naiad.navigator.exceptions import ModelNavigatorEmptyPackageError, ModelNavigatorWrongParameterError
from naiad.navigator.strategies import RuntimeSearchStrategy
from naiad.navigator.triton.config_text import config_text
from naiad.navigator.triton.configs import BaseSpecializedModelConfig
from naiad.navigator.triton.sequences import SequenceBatcherConfig


def add_model(
    model_repository_path: str | Path,
    model_name: str,
    model_path: str | Path,
    config: BaseSpecializedModelConfig,
    model_version: int = 1,
) -> Path:
    """Copy a model's file or folder into a repository, and write its config.pbtxt; return the model's folder.

    A folder becomes that of the version, unless the model itself is one, such as a SavedModel.

    Raises:
        ModelNavigatorWrongParameterError: the configuration is none, or cannot be written.
        FileNotFoundError: there is no such model. Like the next, it is a ``ConvertError`` as well.
        FileExistsError: the version is in the repository already.
        ConvertError: the repository cannot be written.
    """
    if not isinstance(config, BaseSpecializedModelConfig):
        raise ModelNavigatorWrongParameterError(
            f"found a configuration of type {type(config).__name__}, expected one such as ONNXModelConfig"
        )
    source, folder = Path(model_path), Path(model_repository_path) / model_name
    version = folder / str(model_version)
    if not source.exists():
        raise FileMissingError(f"there is no {source}")
    _check_version(version)
    text = config_text(model_name, config)
    try:
        place = version / _file_name(source, config)
        if source.is_dir():
            shutil.copytree(source, place if config.is_folder else version)
        else:
            version.mkdir(parents=True)
            shutil.copyfile(source, place)
        _copy_data(folder, config)
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

    A new version of a model that is there already brings its configuration, which holds for all versions.

    Raises:
        ModelNavigatorEmptyPackageError: no strategy finds a format.
        FileExistsError: the version is in the repository already. It is a ``ConvertError`` as well.
        ConvertError: the repository cannot be written.
    """
    result = package.get_best_model_status(strategies)
    if result is None or result.measured is None:
        raise ModelNavigatorEmptyPackageError("no format of the package was made, verified and measured")
    sample = load_samples(Path(package.conversion.work) / "samples")[0]
    signature = package.signature
    batching = batching_of(result.measured, signature.is_batching)
    repository = Path(model_repository_path)
    folder = repository / model_name
    _check_version(folder / str(model_version))

    def put(place: Path) -> Path:
        made = publish(result, signature, place, model_name, batching, sample, version=model_version)
        if response_cache:
            with (made / "config.pbtxt").open("a", encoding="utf-8") as file:
                file.write("response_cache { enable: true }\n")
        return made

    return _join(put, folder, str(model_version)) if folder.exists() else put(repository)


def _join(put: Callable[[Path], Path], folder: Path, version: str) -> Path:
    """Add a version to the model in ``folder``, made by ``put`` in a repository of its own; return the folder.

    Raises:
        ConvertError: the folder cannot be written.
    """
    try:
        # A name with a dot in front is no model.
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=folder.parent) as beside:
            _move_version(put(Path(beside)), folder, version)
    except OSError as error:
        raise ConvertError(f"{folder} cannot be written: {error}") from None
    return folder


def _check_version(version: Path) -> None:
    if version.exists():
        raise FileThereError(f"there is {version} already; remove it, or give another model_version")


def _move_version(added: Path, folder: Path, version: str) -> None:
    """Move a version, its warm-up samples and its configuration into the model that is there."""
    (added / version).rename(folder / version)
    if (added / "warmup").is_dir():
        shutil.copytree(added / "warmup", folder / "warmup", dirs_exist_ok=True)
    # Last: whoever looks at the repository meanwhile finds a configuration whose files are there.
    (added / "config.pbtxt").replace(folder / "config.pbtxt")


def _file_name(source: Path, config: BaseSpecializedModelConfig) -> str:
    return source.name if source.suffix == ".pt2" and not config.default_model_filename else config.place


def _copy_data(folder: Path, config: BaseSpecializedModelConfig) -> None:
    """Copy the files of warm-up inputs and of initial states to where the server looks for them."""
    warmups = [one.input_data_file for warmup in config.warmup.values() for one in warmup.inputs.values()]
    states = config.batcher.states if isinstance(config.batcher, SequenceBatcherConfig) else ()
    initial = [one.data_file for state in states for one in state.initial_states]
    for name, files in (("warmup", warmups), ("initial_state", initial)):
        for file in filter(None, files):
            (folder / name).mkdir(exist_ok=True)
            shutil.copyfile(file, folder / name / Path(file).name)
