"""Loading one version of a model: the work of a loading thread, from the files to instances that are ready."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from naiad.backends import registry
from naiad.backends.base import Backend, BackendContext
from naiad.backends.hosted import choice
from naiad.config.labels import with_labels
from naiad.config.read import ReadConfig
from naiad.config.resolve import PreparedConfig, finish, prepare
from naiad.config.source import ModelSource
from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError, NaiadError
from naiad.execution.child_calls import Models
from naiad.execution.model import LoadedModel
from naiad.execution.shared_process import SharedProcesses
from naiad.lifecycle.measuring import LoadMeter, files_bytes, process_bytes
from naiad.telemetry.custom_metrics import CustomMetrics


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """The server options that concern loading. ``backend_settings`` gives the ``--backend-config`` of a backend.

    ``shared`` has the processes that models share.
    """

    backend_settings: Callable[[str], Mapping[str, str]]
    auto_complete: bool = True
    model_config_name: str = ""
    cores: int = 0
    shared: SharedProcesses = field(default_factory=SharedProcesses)

    @property
    def usable_cores(self) -> int:
        """``cores``, or as many as this process may run on."""
        if self.cores:
            return self.cores
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_version(
    source: ModelSource,
    version: int,
    read: ReadConfig,
    settings: LoadSettings,
    loop: asyncio.AbstractEventLoop,
    models: Models | None = None,
    metrics: CustomMetrics | None = None,
    meter: LoadMeter | None = None,
) -> tuple[LoadedModel, Any]:
    """Load one version and create its instances.

    ``models`` are those that it can call, ``metrics`` is where what it counts itself is shown, ``meter`` measures it.

    Returns:
        The loaded model and its completed configuration message.

    Raises:
        NaiadError: the version cannot be loaded; nothing of it stays behind.
    """
    created = (lambda backend: None) if meter is None else meter.begin
    prepared, backend, spec = start_backend(source, version, read, settings, created)
    model = LoadedModel(spec, version, backend, loop, models=models, metrics=metrics)
    model.start()
    if meter is not None:
        meter.end()
        folder = prepared.version_directory
        files = files_bytes(prepared.model_path if folder is None else folder)
        model.statistics.memory_bytes = meter.held(process_bytes(model.process_ids), files)
    return model, prepared.config


def start_backend(
    source: ModelSource,
    version: int,
    read: ReadConfig,
    settings: LoadSettings,
    created: Callable[[Backend], None] = lambda backend: None,
) -> tuple[PreparedConfig, Backend, ModelSpec]:
    """One version inside its framework, checked, without instances. The caller closes the backend.

    ``created`` is shown the backend before it has loaded anything.

    Raises:
        NaiadError: the configuration is wrong or does not fit the model, or the model cannot be loaded.
    """
    prepared = prepare(source, version, read=read)
    context = BackendContext(
        model=source.name,
        version=version,
        model_path=prepared.model_path,
        version_directory=prepared.version_directory,
        backend_config=settings.backend_settings(registry.settings_name(prepared.backend)),
        cores=settings.usable_cores,
    )
    backend = choice.create(prepared.backend, context, prepared.config, settings.shared)
    try:
        created(backend)
        if settings.auto_complete:
            backend.complete(prepared.config)
        spec = with_labels(finish(prepared), source.folder(version), prepared.origin)
        backend.config = prepared.config
        backend.start(spec)
    except BaseException as error:
        backend.close()
        if isinstance(error, NaiadError):
            raise
        # A framework that calls for the end of the process, with SystemExit say, ends this load and nothing else.
        raise ModelLoadError(f"{type(error).__name__}: {error}") from error
    return prepared, backend, spec
