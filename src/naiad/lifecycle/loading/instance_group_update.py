"""Updating the instance groups of versions that serve, without loading them again.

Source: the reference's rules for loading a model again. A change of ``instance_group`` alone adds and ends instances;
requests in flight, statistics and all other instances are not touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from naiad.config.resolve import finish, prepare, use_gpus
from naiad.config.spec import ModelSpec
from naiad.errors import InternalError, NaiadError, UnavailableError
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.warmup import Warmup
from naiad.execution.model.group_change import GroupChange
from naiad.execution.model.instance_set import end
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.loading.load_version import LoadSettings, make_warmup
from naiad.lifecycle.state.load_errors import as_load_error, load_failed, located, not_reloaded
from naiad.lifecycle.state.load_threads import LoadPermits, in_thread
from naiad.lifecycle.state.model_table import ModelEntry, VersionEntry
from naiad.lifecycle.state.states import ModelState

if TYPE_CHECKING:
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.operations import Operation

logger = logging.getLogger("naiad")

END_S: Final = 5.0
"""The longest time for which the response to a load waits for the end of instances that leave."""
MAX_LEAVING: Final = 64
"""How many instances of a version may be leaving when another update begins."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The update of one version; ``before`` and ``config`` are completed configuration messages."""

    version: VersionEntry
    model: LoadedModel
    spec: ModelSpec
    before: Any
    config: Any
    regrouping: GroupChange[ModelInstance]


class InstanceGroupUpdate:
    """Changes the instance groups of models that serve. Used on the event loop only; ends what leaves in threads."""

    def __init__(self, settings: LoadSettings, permits: LoadPermits) -> None:
        self._settings = settings
        self._permits = permits
        self._tasks: set[asyncio.Task[None]] = set()

    async def growth(self, entry: ModelEntry, found: Candidate) -> float:
        """The factor by which the groups of ``found`` change the number of instances; 1 if the groups are wrong."""

        def counted() -> float:
            loaded = [(v, v.model) for v in versions if isinstance(v.model, LoadedModel)]
            pairs = [(model.spec, _regrouped(v, model, found, self._settings)[1]) for v, model in loaded]
            before = sum(spec.instance_count for spec, _ in pairs)
            return sum(spec.instance_count for _, spec in pairs) / before if before else 1.0

        versions = entry.ready()
        try:
            return await in_thread(counted)
        except NaiadError:
            # ``update`` raises the error.
            return 1.0

    async def update(self, entry: ModelEntry, found: Candidate, operation: Operation) -> None:
        """Give all versions of a model the groups of ``found``, or none of them when that fails for one.

        Raises:
            UnavailableError: too many instances that left before still finish their requests.
            NaiadError: the groups are wrong, or a new instance cannot be started; what serves goes on as it was.
        """
        changes: list[_Change] = []
        try:
            for version in entry.ready():
                await self._prepare(version, found, operation, changes)
            operation.check_wanted()
        except Exception as error:
            for change in changes:
                await self._undo(change)
            problem = as_load_error(error)
            logger.error("'%s' keeps its instances: %s", entry.name, located(problem))
            for version in entry.ready():
                version.reason = not_reloaded(problem)
            raise (problem if isinstance(problem, UnavailableError) else _failed(entry, problem)) from error
        # Nothing is awaited until all versions have switched: callers see the new groups everywhere or nowhere.
        ending = [task for change in changes for task in self._switch(entry, change)]
        entry.files, entry.read = found.files, found.read
        if ending:
            # A caller that asked for fewer instances may count on their memory. Busy ones are not waited for.
            await asyncio.wait(ending, timeout=END_S)

    async def _prepare(
        self, version: VersionEntry, found: Candidate, operation: Operation, changes: list[_Change]
    ) -> None:
        """Start the instances that a version lacks for its new groups."""
        model = version.model
        if not isinstance(model, LoadedModel):
            raise InternalError(f"version {version.version} serves without instances")
        if model.leaving >= MAX_LEAVING:
            raise UnavailableError(
                f"{model.leaving} earlier instances of model '{model.name}' still finish their requests: load it again "
                "when they have ended"
            )
        permit = await self._permits.take()
        if version.asker is not None:
            # Its new processes may request loads while they start; this operation then waits for them.
            version.asker.operation, version.asker.permit = operation, permit
        try:
            config, spec, warmup = await in_thread(_read, version, model, found, self._settings, operation)
            operation.check_wanted()
            change = _Change(version, model, spec, version.config, config, model.regroup(spec, config, warmup))
            # Before the start, so that one that fails halfway is undone as well.
            changes.append(change)
            await in_thread(model.start_more, change.regrouping, warmup)
        finally:
            if version.asker is not None:
                version.asker.is_loaded()
            permit.release()

    async def _undo(self, change: _Change) -> None:
        coming = change.regrouping.coming
        await in_thread(end, coming)
        change.model.forget(coming)
        change.model.stay_with(change.before)

    def _switch(self, entry: ModelEntry, change: _Change) -> list[asyncio.Task[None]]:
        """Have a version serve with its new groups; the tasks that end the instances that leave."""
        regrouping = change.regrouping
        change.model.serve_by(change.spec, regrouping)
        change.version.config = change.config
        change.version.reason = ""
        loop = asyncio.get_running_loop()
        ending = [loop.create_task(self._end(change.model, instance)) for instance in regrouping.leaving]
        for task in ending:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        counts = change.spec.instance_count, len(regrouping.coming), len(regrouping.leaving)
        logger.info("updated '%s' version %d in place: %d instance(s), %d new, %d leaving",
                    entry.name, change.version.version, *counts)  # fmt: skip
        return ending

    async def _end(self, model: LoadedModel, instance: ModelInstance) -> None:
        """End an instance after its last request. A model that is unloaded meanwhile ends it itself."""
        idle = asyncio.Event()
        instance.when_idle(idle.set)
        await idle.wait()
        await in_thread(end, [instance])
        model.forget([instance])

    def close(self) -> None:
        """Stop waiting for instances that leave: their models end them."""
        for task in self._tasks:
            task.cancel()


def _read(
    version: VersionEntry, model: LoadedModel, found: Candidate, settings: LoadSettings, operation: Operation
) -> tuple[Any, ModelSpec, Warmup]:
    """The completed configuration of a version with the groups of ``found``, and the warm-up of its new instances.

    Raises:
        NaiadError: the groups are wrong.
    """
    config, spec = _regrouped(version, model, found, settings)
    folder = found.source.folder(version.version)
    # Without a check: the load of this version has checked the same samples.
    return config, spec, make_warmup(spec, folder, settings, None, lambda: operation.not_wanted)


def _regrouped(
    version: VersionEntry, model: LoadedModel, found: Candidate, settings: LoadSettings
) -> tuple[Any, ModelSpec]:
    """The completed configuration of a version with the groups of ``found``; errors as ``_read``."""
    written = prepare(
        found.source,
        version.version,
        read=found.read,
        gpu_fallback=settings.gpu_fallback,
        gpus=settings.gpus.usable,
    )
    if written.gpus.ids and model.uses_gpus:
        use_gpus(written)
    # From the completed configuration: the backend is not asked to complete it again.
    config = type(version.config)()
    config.CopyFrom(version.config)
    config.ClearField("instance_group")
    config.instance_group.extend(written.config.instance_group)
    prepared = replace(written, config=config)
    # Only the groups are new: labels and initial states, which ``finish`` does not read, stay.
    return config, replace(model.spec, instance_groups=finish(prepared).instance_groups)


def _failed(entry: ModelEntry, problem: NaiadError) -> NaiadError:
    tried: Sequence[VersionEntry] = [
        VersionEntry(v.version, ModelState.UNAVAILABLE, str(problem)) for v in entry.ready()
    ]
    return load_failed(entry.name, tried, problem)
