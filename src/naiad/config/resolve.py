"""The one way from a model's files to the ``ModelSpec`` it runs by, used by the loader and by ``naiad check`` alike.

read_config -> choose_versions -> prepare (per version) -> Backend.complete -> finish -> Backend.start
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from naiad.config.complete import complete_fields
from naiad.config.freeze import freeze
from naiad.config.normalize import choose_gpus, may_use_gpus, move_to_processor, normalize
from naiad.config.problems import ConfigProblemsError, Origin, Violation
from naiad.config.read import ReadConfig, read_config
from naiad.config.rules import metrics, parameters
from naiad.config.unsupported import OWN_BACKENDS, backend_of_runtime, is_runtime_of_torch, unsupported
from naiad.config.validate import validate
from naiad.errors import ConfigError
from naiad.gpus.usable import NO_GPUS, UsableGpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.config.source import ModelSource
    from naiad.config.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class PreparedConfig:
    """A configuration that knows its backend; ``config`` may now be completed by that backend.

    ``model_path`` is the model file or folder; the version's own folder for a backend that needs no file.
    ``version_directory`` is None for a single file. ``gpus`` are those that its instances may use.
    """

    config: Any
    origin: Origin
    source: ModelSource
    version: int
    model_path: Path
    version_directory: Path | None
    moved: tuple[Violation, ...] = ()
    gpus: UsableGpus = NO_GPUS

    @property
    def backend(self) -> str:
        """Name of the backend that runs the model; "" for an ensemble."""
        return str(self.config.backend)


def prepare(
    source: ModelSource,
    version: int,
    *,
    model_config_name: str = "",
    read: ReadConfig | None = None,
    gpu_fallback: bool = False,
    gpus: Callable[[], UsableGpus] = lambda: NO_GPUS,
) -> PreparedConfig:
    """The configuration of one version, before its backend completes it.

    Args:
        version: one of ``source.versions``.
        model_config_name: as ``read_config`` takes it.
        read: a configuration that was read before; otherwise it is read now.
        gpu_fallback: where there is no GPU, the processor takes the place of those that the configuration names.
        gpus: gives those that can be used; called for a configuration whose instances may run on one.

    Raises:
        ConfigError: the file cannot be read, or nothing tells which backend runs the model.
        ConfigProblemsError: everything that is wrong with a configuration that has no backend.
    """
    read = read or read_config(source, model_config_name)
    folder = source.versions[version]
    config = type(read.config)()
    # A copy, since all versions of a model share ``read``.
    config.CopyFrom(read.config)
    if not config.platform and config.backend not in OWN_BACKENDS:
        # The library says which backend runs the model, whatever the backend is called.
        config.backend = backend_of_runtime(config) or config.backend
    if is_runtime_of_torch(config):
        config.runtime = ""
    complete_fields(config, source, folder)
    usable = gpus() if may_use_gpus(config) else NO_GPUS
    prepared = PreparedConfig(
        config=config,
        origin=read.origin,
        source=source,
        version=version,
        model_path=_model_path(config, source, folder),
        version_directory=None if source.single_file is not None else folder,
        moved=tuple(move_to_processor(config)) if gpu_fallback and not usable.ids else (),
        gpus=usable,
    )
    # No backend completes it further: it is an ensemble, or its platform is unknown.
    if not prepared.backend and (found := problems(prepared)):
        raise ConfigProblemsError(found)
    return prepared


def _model_path(config: Any, source: ModelSource, folder: Path) -> Path:
    if source.single_file is not None:
        return source.single_file
    return folder / config.default_model_filename if config.default_model_filename else folder


def use_gpus(prepared: PreparedConfig) -> None:
    """Let the instances run on GPUs whose kind is left open; called for a framework that can."""
    choose_gpus(prepared.config, prepared.gpus)


def problems(prepared: PreparedConfig) -> list[ConfigError]:
    """Normalise the configuration of ``prepared`` in place; everything that is wrong with it."""
    normalize(prepared.config, prepared.gpus)
    found = validate(
        prepared.config,
        origin=prepared.origin,
        directory=prepared.source.name if prepared.source.directory is not None else None,
        gpus=prepared.gpus,
    )
    return found + unsupported(prepared.config, prepared.origin)


def problems_without_version(source: ModelSource, read: ReadConfig) -> list[ConfigError]:
    """The problems of a configuration as written, for a model without a version folder."""
    config = type(read.config)()
    config.CopyFrom(read.config)
    folder = source.directory or Path()
    try:
        complete_fields(config, source, None)
    except ConfigError:
        # A model file would tell which backend runs it.
        return []
    if config.max_batch_size == 0:
        # The backend might still set the size that these are compared with.
        config.dynamic_batching.ClearField("preferred_batch_size")
    # No rule reads the version or the paths.
    return problems(PreparedConfig(config, read.origin, source, 0, folder, folder))


def finish(prepared: PreparedConfig) -> ModelSpec:
    """The specification of ``prepared``, whose configuration is normalised in place.

    Raises:
        ConfigProblemsError: everything that is wrong with the configuration.
    """
    if found := problems(prepared):
        raise ConfigProblemsError(found)
    return freeze(prepared.config)


def remarks(prepared: PreparedConfig) -> list[str]:
    """The settings of a finished configuration that do not act as written, one line each with their place."""
    found = (*prepared.moved, *parameters.remarks(prepared.config), *metrics.remarks(prepared.config))
    return [prepared.origin.error(remark.message, remark.path).located() for remark in found]
