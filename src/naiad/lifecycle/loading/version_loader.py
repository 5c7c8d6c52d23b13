"""Loading one version within an operation: its permit, retries, memory, progress and state."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from naiad.config.complete import is_ensemble
from naiad.errors import NaiadError
from naiad.lifecycle.loading.load_version import load_version
from naiad.lifecycle.loading.loop_stalls import WORTH_A_LINE_S, LoopStalls
from naiad.lifecycle.loading.retry import with_retries
from naiad.lifecycle.loading.spare_core import SpareCore
from naiad.lifecycle.memory.measure import LoadMeter
from naiad.lifecycle.state.load_errors import as_load_error, located_reason, reason_of
from naiad.lifecycle.state.load_threads import in_thread
from naiad.lifecycle.state.model_requests import AskingModels, RequestingVersion
from naiad.lifecycle.state.states import ModelState

if TYPE_CHECKING:
    from naiad.execution.model.interface import LoadedVersion
    from naiad.execution.model_directory import ModelDirectory
    from naiad.lifecycle.loading.load_version import LoadSettings
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.load_threads import LoadPermits
    from naiad.lifecycle.state.model_requests import CallableModels, ModelLoader
    from naiad.lifecycle.state.model_table import VersionEntry
    from naiad.lifecycle.state.operations import Operation, Operations
    from naiad.telemetry.metrics.custom import CustomMetrics

logger = logging.getLogger("naiad")

FIRST_WORD_S = 5.0
"""How long a load takes before the log reports its progress."""

_LONGEST_PAUSE_S = 60.0
_STALLED = (
    "all requests waited for up to %.2f s while %s:%d was loading: a framework let no other thread run, or the machine "
    "was busy; models with execution=process load in a process of their own"
)


class _Progress:
    """Logs at growing intervals that a load is not over, until ``end``."""

    def __init__(self, what: str, loop: asyncio.AbstractEventLoop) -> None:
        self._what = what
        self._loop = loop
        self._timer = loop.call_later(FIRST_WORD_S, self._say, FIRST_WORD_S, FIRST_WORD_S)

    def _say(self, after_s: float, pause_s: float) -> None:
        logger.info("still loading: %s, for %g s now", self._what, after_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._timer = self._loop.call_later(pause_s, self._say, after_s + pause_s, pause_s)

    def end(self) -> None:
        self._timer.cancel()


class EnsembleLoader(Protocol):
    """Loads the versions that are ensembles."""

    async def load(
        self,
        name: str,
        version: int,
        found: Candidate,
        asker: RequestingVersion,
        models: ModelDirectory | None,
        metrics: CustomMetrics,
    ) -> tuple[LoadedVersion, Any]:
        """Load an ensemble, its members first; the model and its completed configuration message.

        Raises:
            NaiadError: it cannot be loaded.
        """


class VersionLoader:
    """Loads versions. Used on the event loop only.

    Args:
        control: starts the loads and unloads that models request.
        settings: how versions are loaded.
        permits: bound how many load at the same time.
        operations: refuse loads once the server is stopping.
        ensembles: loads versions that are ensembles.
        metrics: the metrics that models define themselves.
    """

    def __init__(
        self,
        control: ModelLoader,
        settings: LoadSettings,
        permits: LoadPermits,
        operations: Operations,
        ensembles: EnsembleLoader,
        metrics: CustomMetrics,
    ) -> None:
        self._control = control
        self._settings = settings
        self._permits = permits
        self._operations = operations
        self._ensembles = ensembles
        self._metrics = metrics
        self._meters: set[LoadMeter] = set()
        self._spare_core = SpareCore(settings.wait_s, lambda: settings.budget.requests)

    async def load(
        self,
        name: str,
        version: VersionEntry,
        found: Candidate,
        operation: Operation,
        callable_models: CallableModels | None,
    ) -> NaiadError | None:
        """Load a version of the model ``name``, which is ready afterwards; its error if it cannot be loaded.

        ``callable_models`` are the models that it can call.
        """
        version.become(ModelState.LOADING)
        asker = version.asker = RequestingVersion(operation)
        # The members of an ensemble wait themselves, and a load for which a request waits must not. Before the permit:
        # loads that wait for a core keep none from others.
        if not is_ensemble(found.read.config) and not operation.is_awaited:
            await self._spare_core.wait(f"'{name}' version {version.version}", lambda: not operation.not_wanted)
        # The asker knows it, to release it while its model waits for another load, which may need it.
        permit = asker.permit = await self._permits.take()
        logger.info("loading: %s:%d", name, version.version)
        # The waits before do not count as load time.
        begun = monotonic()
        models = None if callable_models is None else AskingModels(callable_models, self._control, asker, name)
        loop = asyncio.get_running_loop()
        meter = LoadMeter(self._meters)
        progress, stalls = _Progress(f"{name}:{version.version}", loop), LoopStalls(loop)

        async def load() -> tuple[LoadedVersion, Any]:
            # At each try: a retry must not begin once the server is stopping.
            self._operations.check_open(name)
            if is_ensemble(found.read.config):
                return await self._ensembles.load(name, version.version, found, asker, models, self._metrics)
            return await in_thread(
                load_version,
                found.source,
                version.version,
                found.read,
                self._settings,
                loop,
                models,
                self._metrics,
                lambda: operation.not_wanted,
                meter,
            )

        try:
            model, config = await with_retries(
                f"'{name}' version {version.version}", self._settings.retries, load, lambda: not operation.not_wanted
            )
        except Exception as error:
            problem = as_load_error(error)
            version.become(ModelState.UNAVAILABLE, reason_of(problem))
            logger.error("failed to load '%s' version %d: %s", name, version.version, located_reason(problem))
            return problem
        finally:
            progress.end()
            stalls.end()
            # While the server starts there are no requests.
            if stalls.worst_s > WORTH_A_LINE_S and self._control.loaded:
                logger.info(_STALLED, stalls.worst_s, name, version.version)
            meter.close()
            asker.is_loaded()
            permit.release()
        _serve(name, version, found, model, config, monotonic() - begun)
        return None


def _serve(
    name: str, version: VersionEntry, found: Candidate, model: LoadedVersion, config: Any, seconds: float
) -> None:
    model.statistics.load_seconds = seconds
    model.namespace = found.source.namespace
    version.model, version.config, version.source, version.folder = model, config, found.source, found.folder
    if found.folder is not None:
        # Each version holds the folder until it is closed: the last one has it removed.
        found.folder.lease()
    version.become(ModelState.READY)
    logger.info(
        "successfully loaded '%s' version %d: %s, %d instance(s), %.2f s",
        name,
        version.version,
        model.spec.backend or model.spec.platform,
        model.spec.instance_count,
        seconds,
    )
