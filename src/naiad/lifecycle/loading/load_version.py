"""Loading one version of a model: the work of a loading thread, from the files to instances that are ready."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from naiad.backend_api.backend import Backend, BackendContext
from naiad.backend_api.host_policy import NO_POLICIES, HostPolicies
from naiad.backends import placement as choice
from naiad.backends import registry
from naiad.cache.local import LocalCache
from naiad.cache.redis import RedisCache
from naiad.config.backend_view import as_backend_sees
from naiad.config.freeze import instance_group
from naiad.config.labels import with_labels
from naiad.config.read import ReadConfig
from naiad.config.resolve import PreparedConfig, finish, prepare, remarks, use_gpus
from naiad.config.sequence import run_spec, with_initial_states
from naiad.config.source import ModelSource
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.errors import ModelLoadError, NaiadError
from naiad.execution.instances.run_times import RunTimes
from naiad.execution.instances.warmup import Warmup
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.remote_cache import SharedCache
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.sequence.model import SequenceModel
from naiad.execution.worker.shared_process import SharedProcesses
from naiad.gpus.access import ANY_GPU, GpuAccess
from naiad.lifecycle.loading.accelerator_check import check_accelerators, without_accelerators
from naiad.lifecycle.loading.custom_batching_file import load_strategy
from naiad.lifecycle.loading.finder import Finder
from naiad.lifecycle.loading.readable_files import check_readable, unreadable
from naiad.lifecycle.loading.warmup_samples import runs_of, samples_of
from naiad.lifecycle.memory.measure import LoadMeter, files_bytes, process_bytes
from naiad.processes.affinity import server_cores
from naiad.processes.freed_memory import return_freed_memory
from naiad.processes.huge_pages import use_huge_pages
from naiad.repository.agents.agents import AgentDirectory
from naiad.repository.changes.identity import identity_of
from naiad.scheduling.admission import RequestBudget
from naiad.telemetry.metrics.custom import CustomMetrics

logger = logging.getLogger("naiad")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """The server options that concern loading.

    Attributes:
        backend_settings: gives the ``--backend-config`` of a backend.
        retries: how often a failed load is tried again.
        shared: the processes that models share.
        cache: the responses of models with a response cache.
        budget: bounds the requests to all models.
        limits: the resources that instances share; None where they share none.
        auto_warmup: warms up models whose configuration has no warm-up.
        gpu_fallback: serves models on the processor whose configuration asks for a GPU, where there is none.
        gpus: those that models may use, and how full one may be.
        pinned_bytes: the most pinned memory for copies to GPUs.
        agents: finds repository agents.
        policies: where instances run.
        checks_accelerators: measures models with accelerators against themselves without.
        own_backends: the backends that the program brings which embeds the server, by name.
        wait_s: how long a load waits at most while requests use every core.
    """

    backend_settings: Callable[[str], Mapping[str, str]]
    auto_complete: bool = True
    model_config_name: str = ""
    cores: int = 0
    retries: int = 0
    shared: SharedProcesses = field(default_factory=SharedProcesses)
    cache: LocalCache | RedisCache | None = None
    budget: RequestBudget = field(default_factory=RequestBudget)
    limits: RateLimits | None = None
    auto_warmup: bool = False
    gpu_fallback: bool = False
    gpus: GpuAccess = ANY_GPU
    pinned_bytes: int = 1 << 28
    agents: AgentDirectory = field(default_factory=AgentDirectory)
    policies: HostPolicies = NO_POLICIES
    checks_accelerators: bool = False
    own_backends: Mapping[str, Callable[[BackendContext], Backend]] = field(default_factory=dict)
    wait_s: float = 0.0

    @property
    def finder(self) -> Finder:
        """The finder of candidates."""
        return Finder(self.model_config_name, self.agents, needs_config=not self.auto_complete)

    @property
    def usable_cores(self) -> int:
        """``cores``, or the number of cores that this process may run on."""
        if self.cores:
            return self.cores
        return len(server_cores()) or os.cpu_count() or 1


def load_version(
    source: ModelSource,
    version: int,
    read: ReadConfig,
    settings: LoadSettings,
    loop: asyncio.AbstractEventLoop,
    models: ModelDirectory | None = None,
    metrics: CustomMetrics | None = None,
    not_wanted: Callable[[], str] = lambda: "",
    meter: LoadMeter | None = None,
) -> tuple[LoadedModel, Any]:
    """Load one version, create its instances and warm them up.

    ``models`` are the models that it can call, ``metrics`` takes the metrics that it defines itself, ``meter`` measures
    it. ``not_wanted`` says why a warm-up is to end before its time.

    Returns:
        The loaded model and its completed configuration message.

    Raises:
        NaiadError: the version cannot be loaded; nothing of it stays behind.
    """
    # This thread was started by the event loop, whose cores are not those of models.
    with settings.policies.elsewhere.held():
        return _load_version(source, version, read, settings, loop, models, metrics, not_wanted, meter)


def _load_version(
    source: ModelSource,
    version: int,
    read: ReadConfig,
    settings: LoadSettings,
    loop: asyncio.AbstractEventLoop,
    models: ModelDirectory | None,
    metrics: CustomMetrics | None,
    not_wanted: Callable[[], str],
    meter: LoadMeter | None,
) -> tuple[LoadedModel, Any]:
    created = (lambda backend: None) if meter is None else meter.begin
    prepared, backend, spec = start_backend(source, version, read, settings, created)
    for line in settings.policies.described(spec.instance_groups):
        logger.info("model '%s': %s", spec.name, line)
    try:
        warmup = make_warmup(spec, source.folder(version), settings, models, not_wanted)
        strategy = load_strategy(
            spec,
            version,
            prepared.config,
            source.folder(version),
            prepared.version_directory,
            backend.context.backend_config.get(registry.BACKEND_DIRECTORY, ""),
        )
        cache = _cache_of(spec, settings.cache, lambda: identity_of(source, version, prepared.config))
        model: LoadedModel
        if spec.sequence is None:
            model = LoadedModel(
                spec,
                version,
                backend,
                loop,
                models=models,
                metrics=metrics,
                cache=cache,
                budget=settings.budget,
                strategy=strategy,
                limits=settings.limits,
            )
        else:
            # Without the cache: the response to a request of a sequence depends on the requests before it.
            model = SequenceModel(
                spec,
                version,
                backend,
                loop,
                models=models,
                metrics=metrics,
                budget=settings.budget,
                limits=settings.limits,
            )
    except BaseException:
        backend.close()
        raise
    # A model whose start fails closes its backend itself.
    model.start(warmup)
    if warmup.times is not None:

        def start_plain() -> tuple[Backend, ModelSpec]:
            return start_backend(source, version, without_accelerators(read), settings)[1:]

        check_accelerators(spec, warmup.times, warmup.again(), start_plain, version, loop)
    if backend.framework:
        return_freed_memory()
        use_huge_pages()
    if meter is not None:
        meter.end()
        folder = prepared.version_directory
        files = files_bytes(prepared.model_path if folder is None else folder)
        model.statistics.memory_bytes = meter.held(process_bytes(model.process_ids), files)
    return model, prepared.config


def _cache_of(
    spec: ModelSpec, cache: LocalCache | RedisCache | None, identity: Callable[[], str]
) -> LocalCache | SharedCache | None:
    if spec.is_cached and cache is None:
        logger.warning(
            "model '%s' asks for a response cache, and the server has none: give it one with --cache-config, or remove "
            "'response_cache'",
            spec.name,
        )
    if not spec.is_cached:
        return None
    # Redis outlives this load and serves other servers: its keys say which files respond. Reading these takes time, so
    # it is done for such models only.
    return SharedCache(cache, identity()) if isinstance(cache, RedisCache) else cache


def make_warmup(
    spec: ModelSpec, folder: Path, settings: LoadSettings, models: ModelDirectory | None, not_wanted: Callable[[], str]
) -> Warmup:
    """The warm-up of new instances of a version; ``folder`` is the model's own.

    Raises:
        NaiadError: a sample of the configuration is wrong.
    """
    check = None if models is None else models.check
    is_checked = settings.checks_accelerators and bool(spec.accelerators)
    is_automatic = settings.auto_warmup or is_checked
    again = partial(samples_of, spec, folder, check, is_automatic, settings.budget.max_bytes)
    samples = again()
    if samples:
        runs, instances = runs_of(spec, samples), spec.instance_count
        logger.info("warming up '%s': %d run(s) on each of %d instance(s)", spec.name, runs, instances)
    # A worker that restarts has its samples made anew, so that none are held for it meanwhile.
    return Warmup(samples, not_wanted, again, RunTimes() if is_checked else None)


def start_backend(
    source: ModelSource,
    version: int,
    read: ReadConfig,
    settings: LoadSettings,
    created: Callable[[Backend], None] = lambda backend: None,
) -> tuple[PreparedConfig, Backend, ModelSpec]:
    """Load one version into its framework and check it, without instances. The caller closes the backend.

    ``created`` gets the backend before it has loaded anything.

    Raises:
        NaiadError: the configuration is wrong or does not fit the model, or the model cannot be loaded.
    """
    try:
        prepared = prepare(source, version, read=read, gpu_fallback=settings.gpu_fallback, gpus=settings.gpus.usable)
    except PermissionError as error:
        raise unreadable(source.name, Path(error.filename or source.versions[version]), error) from error
    check_readable(source.name, prepared.model_path)
    context = BackendContext(
        model=source.name,
        version=version,
        model_path=prepared.model_path,
        version_directory=prepared.version_directory,
        backend_config=settings.backend_settings(registry.settings_name(prepared.backend)),
        cores=settings.usable_cores,
        policies=settings.policies,
        pinned_bytes=settings.pinned_bytes,
    )
    # A configuration without groups gets one, as ``normalize`` says.
    groups = tuple(instance_group(group) for group in prepared.config.instance_group)
    groups = groups or (InstanceGroupSpec(source.name, "KIND_CPU", 1),)
    settings.policies.check(source.name, groups)
    own = settings.own_backends.get(prepared.backend)
    backend = own(context) if own else choice.create(prepared.backend, context, prepared.config, settings.shared)
    try:
        created(backend)
        # What a framework starts and allocates while it loads stays where the thread was that loaded.
        with settings.policies.first(groups).held():
            spec = _started(backend, source, version, prepared, settings)
    except BaseException as error:
        backend.close()
        if isinstance(error, NaiadError):
            raise
        # A framework that raises SystemExit ends this load, not the server.
        raise ModelLoadError(f"{type(error).__name__}: {error}") from error
    return prepared, backend, spec


def _gpus(spec: ModelSpec) -> set[int]:
    return {gpu for group in spec.instance_groups for gpu in group.gpus}


def _started(
    backend: Backend, source: ModelSource, version: int, prepared: PreparedConfig, settings: LoadSettings
) -> ModelSpec:
    uses_gpus = bool(prepared.gpus.ids) and backend.uses_gpus()
    if uses_gpus:
        use_gpus(prepared)
    if settings.auto_complete:
        backend.complete(prepared.config)
    spec = with_labels(finish(prepared), source.folder(version), prepared.origin)
    if prepared.gpus.ids and not uses_gpus:
        logger.info(
            "model '%s' runs on the processor: the backend '%s', as it is installed, uses no GPU of this machine",
            source.name,
            prepared.backend,
        )
    for remark in (*remarks(prepared), *settings.policies.remarks(source.name, spec.instance_groups)):
        logger.warning("%s", remark)
    settings.policies.check(source.name, spec.instance_groups)
    settings.gpus.check_room(source.name, _gpus(spec))
    spec = with_initial_states(spec, source.folder(version), prepared.origin)
    backend.config = prepared.config
    backend.start(as_backend_sees(run_spec(spec)))
    return spec
