"""The tuner: follows the models that have a latency objective and changes them while they serve.

Everything belongs to the event loop. A decision is made in a thread, as a regression takes some milliseconds. Batches
are changed at once, instances by an operation on the model, as by a load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.errors import NaiadError
from naiad.execution.model.interface import LoadedVersion, ServingModel
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.state.load_threads import in_thread
from naiad.lifecycle.tuning.limits import give_instances, limits_of, why_not_tuned
from naiad.options.latency_objective import OFF, PARAMETER, LatencyObjective, read_objective
from naiad.scheduling.tuning.setup import SetupLimits, TunedSetup

if TYPE_CHECKING:
    from naiad.lifecycle.tuning.tuned_model import TunedModel

logger = logging.getLogger("naiad")

INTERVAL_S: Final = 0.25
"""How often the counters are read."""


class ConfigChanger(Protocol):
    """The part of the manager that the tuner uses."""

    async def change_config(self, key: str, change: Callable[[Any, Any], None]) -> None:
        """Serve a loaded model with another configuration; errors as a load."""


class ModelTuner:
    """Tunes models. Costs nothing while none has an objective.

    Args:
        manager: changes instances.
        default: the objective of models that have none of their own; None for none.
        cores: of the server.

    Attributes:
        models: those that are tuned, by the version that serves.
    """

    def __init__(self, manager: ConfigChanger, default: LatencyObjective | None, cores: int) -> None:
        self._manager = manager
        self._default = default
        self._cores = cores
        self._by_key: dict[tuple[str, int], TunedModel] = {}
        self._task: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def models(self) -> Mapping[tuple[str, int], TunedModel]:
        """The tuned models by key and version."""
        return self._by_key

    def of(self, model: ServingModel) -> TunedModel | None:
        """The state of a loaded version; None for one that is not tuned."""
        found = self._by_key.get(_key(model))
        return found if found is not None and found.model is model else None

    def follow(self, model: LoadedVersion) -> None:
        """Tune a version from now on if it has an objective. Called before its first request."""
        objective = self._objective(model)
        if objective is None or self._is_closed or not isinstance(model, LoadedModel):
            return
        known = self._by_key.get(_key(model))
        # The tuner's own reload brings another version object; any other load begins anew.
        if known is not None and known.is_changing and known.objective == objective:
            known.serve_by(model)
            return
        if problem := why_not_tuned(model.spec):
            logger.info("'%s' is not tuned for %s: %s", model.name, objective, problem)
            return
        limits = limits_of(model.spec, objective, self._cores)
        self._by_key[_key(model)] = _tuned_model(model, objective, limits)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _objective(self, model: LoadedVersion) -> LatencyObjective | None:
        own = model.spec.parameters.get(PARAMETER)
        if own is None:
            return self._default
        return None if own.strip() == OFF else read_objective(own)

    def forget(self, model: ServingModel) -> None:
        """Tune a version no more: it is being unloaded."""
        if self.of(model) is not None:
            del self._by_key[_key(model)]

    def close(self) -> None:
        """Change nothing any more; the models stay as they are."""
        self._is_closed = True
        for task in (self._task, *self._work):
            if task is not None:
                task.cancel()
        self._by_key.clear()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        while self._by_key:
            await asyncio.sleep(INTERVAL_S)
            now = loop.time()
            for key, tuned in list(self._by_key.items()):
                try:
                    self._look(key, tuned, now - before)
                except Exception:
                    logger.exception("'%s' is not tuned any more", tuned.model.name)
                    del self._by_key[key]
            before = now
        self._task = None

    def _look(self, key: tuple[str, int], tuned: TunedModel, seconds: float) -> None:
        """Read the counters of a model, and have a decision made when they are enough for one."""
        if tuned.is_changing:
            return
        if tuned.is_outdated:
            # Somebody loaded it with other instances.
            limits = limits_of(tuned.model.spec, tuned.objective, self._cores)
            self._by_key[key] = _tuned_model(tuned.model, tuned.objective, limits)
        elif tuned.controller.add(tuned.sample(seconds)):
            self._begin(tuned)

    def _begin(self, tuned: TunedModel) -> None:
        tuned.is_changing = True
        task = asyncio.get_running_loop().create_task(self._tune(tuned))
        self._work.add(task)
        task.add_done_callback(partial(self._ended, tuned))

    def _ended(self, tuned: TunedModel, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        tuned.is_changing = False
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("'%s' is not tuned any more", tuned.model.name, exc_info=error)
            self.forget(tuned.model)

    async def _tune(self, tuned: TunedModel) -> None:
        decision = await in_thread(tuned.controller.decide)
        if decision is None:
            return
        tuned.count(decision)
        logger.info("tuned '%s': %s (%s)", tuned.model.name, decision.setup, decision.reason)
        try:
            await self._apply(tuned, decision.setup)
            tuned.problem = ""
        except NaiadError as error:
            tuned.problem = str(error)
            await self._fall_back(tuned, decision.setup, error)
        # What ran while the instances changed belongs to neither setup.
        tuned.skip()

    async def _apply(self, tuned: TunedModel, setup: TunedSetup) -> None:
        if not setup.same_instances(tuned.applied):
            change = partial(give_instances, setup=setup, backend=tuned.model.spec.backend)
            await self._manager.change_config(_key(tuned.model)[0], change)
        tuned.applied = setup
        tuned.batch_by(setup)

    async def _fall_back(self, tuned: TunedModel, setup: TunedSetup, error: NaiadError) -> None:
        """Return to the configuration after a change that failed."""
        logger.warning("'%s' keeps its instances: %s", tuned.model.name, error)
        decision = tuned.controller.failed(setup, str(error))
        tuned.count(tuned.controller.decision)
        configured = tuned.limits.configured if decision is None else decision.setup
        try:
            await self._apply(tuned, configured)
        except NaiadError as again:
            # The instances that serve stay: the batches alone are as configured.
            logger.warning("'%s' cannot return to its configured instances: %s", tuned.model.name, again)
            tuned.batch_by(configured)


def _tuned_model(model: LoadedModel, objective: LatencyObjective, limits: SetupLimits) -> TunedModel:
    # Imported here: a server without objectives has no need of the search.
    from naiad.lifecycle.tuning.tuned_model import TunedModel

    return TunedModel(model, objective, limits)


def _key(model: ServingModel) -> tuple[str, int]:
    namespace = getattr(model, "namespace", "")
    return f"{namespace}/{model.name}" if namespace else model.name, model.version
