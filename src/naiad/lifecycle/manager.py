"""Owns every model: loads them at the start, several at a time, and lets them finish and go at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from naiad.config.read import ReadConfig
from naiad.config.source import ModelSource
from naiad.errors import ConfigError, ModelLoadError, NaiadError
from naiad.execution.child_calls import Models
from naiad.execution.model import LoadedModel
from naiad.lifecycle.entries import ModelEntry, VersionEntry
from naiad.lifecycle.loading import LoadSettings, load_version, versions_to_load
from naiad.lifecycle.states import ModelState

logger = logging.getLogger("naiad")


class ModelManager:
    """The models by name. ``entries`` is changed on the event loop only; loading itself happens in threads.

    ``loaded`` is true once every model was tried. ``models`` is what models find others with, set by who serves them.
    """

    def __init__(self, settings: LoadSettings, load_threads: int) -> None:
        self.entries: dict[str, ModelEntry] = {}
        self.loaded = False
        self.models: Models | None = None
        self._settings = settings
        self._pool = ThreadPoolExecutor(load_threads, thread_name_prefix="naiad-load")

    async def load_all(self, sources: Iterable[ModelSource]) -> None:
        """Try to load every model; what became of each stands in ``entries`` and in the log."""
        found = list(sources)
        for source in found:
            self.entries[source.name] = ModelEntry(source.name)
        await asyncio.gather(*(self._load_model(source) for source in found))
        self.loaded = True

    def refuse(self, name: str, problem: NaiadError) -> None:
        """Note a model that cannot be tried at all, such as one that two repositories hold."""
        self.entries[name] = ModelEntry(name, problem=problem)
        logger.error("failed to load '%s': %s", name, problem)

    async def _load_model(self, source: ModelSource) -> None:
        entry = self.entries[source.name]
        loop = asyncio.get_running_loop()
        try:
            read, versions = await loop.run_in_executor(self._pool, versions_to_load, source, self._settings)
        except Exception as error:
            entry.problem = _as_load_error(error)
            logger.error("failed to load '%s': %s", source.name, _located(entry.problem))
            return
        for version in versions:
            entry.versions[version] = VersionEntry(version)
        await asyncio.gather(*(self._load_version(source, entry, version, read) for version in versions))

    async def _load_version(self, source: ModelSource, entry: ModelEntry, version: int, read: ReadConfig) -> None:
        found = entry.versions[version]
        found.become(ModelState.LOADING)
        logger.info("loading: %s:%d", entry.name, version)
        begun = monotonic()
        loop = asyncio.get_running_loop()
        try:
            model, config = await loop.run_in_executor(
                self._pool, load_version, source, version, read, self._settings, loop, self.models
            )
        except Exception as error:
            problem = _as_load_error(error)
            found.become(ModelState.UNAVAILABLE, str(problem))
            logger.error("failed to load '%s' version %d: %s", entry.name, version, _located(problem))
            return
        self._serve(entry, found, model, config, monotonic() - begun)

    def _serve(self, entry: ModelEntry, found: VersionEntry, model: LoadedModel, config: Any, seconds: float) -> None:
        model.statistics.load_seconds = seconds
        found.model, found.config = model, config
        found.become(ModelState.READY)
        entry.choose_serving()
        logger.info(
            "successfully loaded '%s' version %d: %s, %d instance(s), %.2f s",
            entry.name,
            found.version,
            model.spec.backend,
            model.spec.instance_count,
            seconds,
        )

    async def unload_all(self, timeout: float) -> bool:
        """Refuse new requests, let the accepted ones finish, close everything; False when that took longer."""
        models = [v.model for e in self.entries.values() for v in e.versions.values() if v.model is not None]
        deadline = monotonic() + timeout
        drained = await asyncio.gather(*(_drain(model, timeout) for model in models))
        loop = asyncio.get_running_loop()
        # A model may have something to finish of its own.
        left_s = max(1.0, deadline - monotonic())
        closed = await asyncio.gather(*(loop.run_in_executor(None, model.close, left_s) for model in models))
        for model in models:
            model.detach()
        self._pool.shutdown(wait=False, cancel_futures=True)
        return all(drained) and all(closed)


async def _drain(model: LoadedModel, timeout: float) -> bool:
    """Wait until a model has answered all it accepted."""
    model.stop_accepting()
    if model.in_flight == 0:
        # Also with a timeout of zero, for which an event is not even looked at.
        return True
    drained = asyncio.Event()
    model.when_drained(drained.set)
    try:
        await asyncio.wait_for(drained.wait(), timeout)
    except TimeoutError:
        return False
    return True


def _located(problem: NaiadError) -> str:
    """The text for the log, which may name the server's files."""
    return problem.located() if isinstance(problem, ConfigError) else str(problem)


def _as_load_error(error: Exception) -> NaiadError:
    if isinstance(error, NaiadError):
        return error
    logger.error("unexpected error while loading", exc_info=error)
    return ModelLoadError(f"{type(error).__name__}: {error}")
