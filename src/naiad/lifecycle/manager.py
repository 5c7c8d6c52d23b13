"""The owner of every model: it loads models at the start and on request, and drains them on request and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from naiad.config.source import ModelSource
from naiad.errors import InternalError, NaiadError, StoreError, UnavailableError
from naiad.lifecycle.ensembles.dependencies import Ensembles, MissingMemberError
from naiad.lifecycle.loading.config_change import ConfigChange, changeable, changed
from naiad.lifecycle.loading.config_diff import only_groups_differ, unchanged_versions
from naiad.lifecycle.loading.instance_group_update import InstanceGroupUpdate
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.loading.version_loader import VersionLoader
from naiad.lifecycle.loading.version_swap import ServingObserver, VersionSwap
from naiad.lifecycle.memory.budget import MemorySettings, ModelMemory, TooLargeError
from naiad.lifecycle.memory.load_on_demand import LoadOnDemand
from naiad.lifecycle.naming import ModelKeys, NamespacedEntries, RepositoryNames, ambiguous
from naiad.lifecycle.state.candidate import Candidate
from naiad.lifecycle.state.draining import Draining
from naiad.lifecycle.state.load_errors import as_load_error, load_failed, located, not_found, not_reloaded
from naiad.lifecycle.state.load_threads import LoadPermits, in_thread
from naiad.lifecycle.state.model_requests import CallableModels, Done, RequestingVersion
from naiad.lifecycle.state.model_table import UNLOADED, ModelEntry, VersionEntry, note
from naiad.lifecycle.state.operations import Operation, Operations
from naiad.lifecycle.state.states import ModelState
from naiad.lifecycle.state.unknown_names import UnknownNames
from naiad.lifecycle.state.upload_quota import UploadQuota
from naiad.repository.catalog import Catalog
from naiad.repository.changes.fingerprint import Fingerprint
from naiad.repository.changes.settle import wait_until_still
from naiad.repository.local.overrides import NO_OVERRIDES, Overrides
from naiad.telemetry.metrics.custom import CustomMetrics

if TYPE_CHECKING:
    from naiad.repository.remote.repository import RemoteModel

logger = logging.getLogger("naiad")

MAX_UNLOADING: Final = 8
"""How many earlier copies of each version of a model may be draining when it is loaded again."""
FETCHES: Final = 4
"""How many models of remote repositories are fetched at the same time at the start."""
_NOT_EXPLICIT: Final = (
    "explicit model load / unload is not allowed if polling is enabled; start the server with "
    "--model-control-mode=explicit to load and unload models over the API"
)
NO_LIMITS: Final = MemorySettings()


class ModelManager:
    """The models by name. ``entries`` is changed on the event loop only; the work itself happens in threads.

    Args:
        settings: how models are loaded.
        load_threads: how many versions load at the same time.
        catalog: where ``load_model`` looks for a model.
        is_explicit: models may be loaded and unloaded on request.
        memory: the limits for memory, and whether requests load models.

    Attributes:
        memory: the memory of models, and their evictions.
        demand: loads models for requests; None when requests load none.
        loaded: every model of the start was tried.
        versions: changes which versions of a model serve.
        names: the names of all models in the repositories.
        custom_metrics: the metrics that models define themselves.
        budget: bounds the requests to all models.
    """

    def __init__(
        self,
        settings: LoadSettings,
        load_threads: int,
        catalog: Catalog | None = None,
        is_explicit: bool = False,
        memory: MemorySettings = NO_LIMITS,
    ) -> None:
        self.loaded = False
        self.custom_metrics = CustomMetrics()
        self._settings = settings
        self.budget = settings.budget
        self._catalog = catalog or Catalog()
        self.entries: dict[str, ModelEntry] = NamespacedEntries() if self._catalog.has_namespaces else {}
        self.names = RepositoryNames(self._catalog)
        self._keys = ModelKeys(self._catalog, self.names, self.entries)
        self._is_explicit = is_explicit
        self._operations = Operations()
        # A version that has drained frees memory, for which loads may wait: they look again.
        self._draining = Draining(self._operations.graph.notify)
        permits = LoadPermits(load_threads)
        self._in_place = InstanceGroupUpdate(settings, permits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unknown = UnknownNames(self.entries, lambda: self.names.known, self._operations.concern)
        self._quota = UploadQuota()
        self._fetching = asyncio.Semaphore(FETCHES)
        graph = self._operations.graph
        # Without a budget no ensemble waits for memory, so none has to wait for its turn.
        self._ensembles = Ensembles(self, self._keys, settings, graph, in_turn=bool(memory.budget_bytes))
        loads = VersionLoader(self, settings, permits, self._operations, self._ensembles, self.custom_metrics)
        self.versions = VersionSwap(loads, self._draining)
        self.versions.when_changed.append(self._ensembles.look_soon)
        self.versions.observers.append(self._ensembles)
        self.demand = LoadOnDemand(self, memory.demand_s, graph) if memory.demand_s else None
        self.memory = ModelMemory(
            self.entries,
            memory,
            self._operations,
            self._ensembles.members_within,
            self._retire_model,
            self._draining.models,
        )

    def subscribe(self, directory: CallableModels, observer: ServingObserver) -> None:
        """Have models call those of ``directory``, and ``observer`` follow which models serve from now on."""
        self.versions.directory = directory
        self.versions.observers.append(observer)

    # At the start

    async def load_all(self, sources: Iterable[ModelSource | RemoteModel]) -> None:
        """Try to load every model; the outcome of each is in ``entries`` and in the log."""
        # All entries before the first load: an ensemble finds the members of its own namespace that have yet to begin.
        found = list(sources)
        for source in found:
            self._entry(source.key)
        self.memory.start()
        with self.memory.starting():
            await asyncio.gather(*(self._load_source(source) for source in found))
        self.loaded = True

    def refuse(self, name: str, problem: NaiadError) -> None:
        """Note a model that cannot be tried at all, such as a name that two repositories have."""
        self.entries[name] = ModelEntry(name, problem=problem)
        logger.error("failed to load '%s': %s", name, located(problem))

    async def _load_source(self, source: ModelSource | RemoteModel) -> None:
        async with self._operations.turn(source.key, is_requested=False) as operation:
            # It may have been loaded over the API meanwhile.
            if self._entry(source.key).serving:
                return
            try:
                found = await self._first(source)
            except Exception as error:
                # A broken model must not end the start of the others.
                self.refuse(source.key, as_load_error(error))
                return
            async with self._trying(self._entry(source.key), found) as entry:
                try:
                    # Models of the start do not make room for each other: all of them are wanted.
                    async with self.memory.room(entry, found, operation, evicts=False):
                        await self.versions.load_first(entry, found, operation)
                except NaiadError as error:
                    self._leave_out(entry, found, error)

    def _leave_out(self, entry: ModelEntry, found: Candidate, problem: NaiadError) -> None:
        """Note a model of the start for which there is no memory: no failure where requests load models."""
        if self.demand is None:
            self.refuse(entry.name, problem)
            return
        logger.warning("'%s' is not loaded until a request asks for it: %s", entry.name, problem)
        reason = f"not loaded until a request asks for it: {problem}"
        for version in found.versions:
            gone = VersionEntry(version, ModelState.UNAVAILABLE, reason, reason_gone=reason)
            entry.versions.setdefault(version, gone)

    async def _first(self, source: ModelSource | RemoteModel, known: Fingerprint | None = None) -> Candidate:
        if isinstance(source, ModelSource):
            return await in_thread(self._settings.finder.candidate, source)
        async with self._fetching:
            return await in_thread(self._settings.finder.fetched, source, known)

    def _entry(self, name: str) -> ModelEntry:
        found = self.entries.get(name)
        if found is None:
            found = self.entries[name] = ModelEntry(name)
        return found

    # While serving

    async def load_model(
        self, name: str, overrides: Overrides = NO_OVERRIDES, asker: RequestingVersion | None = None
    ) -> None:
        """Load a model as its repository has it now, with the configuration and files of ``overrides`` in their place.

        Where namespaces let names repeat, all models of the name are loaded, and ``overrides`` needs a single one.

        Versions that serve are replaced once the new ones are loaded, and stay when these cannot be. Nothing happens
        when the model serves, its files are the same and nothing is overridden; or when it is an ensemble that was
        unloaded because its members changed, its files are the same, and its members still do not fit.

        Raises:
            UnavailableError: the server does not run in explicit mode, or too many operations are queued.
            ServerStoppingError: the server is stopping.
            InternalError: there is no such model, or its configuration is wrong.
            UnusableFilesError: the files of ``overrides`` cannot be the files of a model.
            ModelLoadError: a version cannot be loaded.
        """
        self._check_explicit()
        problem: NaiadError | None = None
        for key in await self._keys_of(name, overrides, asker):
            # Even if the load finds nothing to do: the model is no longer there for its ensemble alone.
            self._ensembles.wanted(key)
            try:
                await self._load_one(key, overrides, asker)
            except NaiadError as error:
                # A broken model does not keep others of its name from loading.
                problem = problem or error
        if problem is not None:
            raise problem
        # That wait has no edge in the wait-for graph, so a model that loads must not begin it.
        if asker is None:
            # The ensembles that lacked it are loaded before the caller has the response.
            await self._ensembles.settled()

    async def _keys_of(self, name: str, overrides: Overrides, asker: RequestingVersion | None) -> list[str]:
        if self._keys.is_key(name):
            return [name]
        # An operation too: they are bounded, and threads that look would not be.
        async with self._turn(name, asker):
            keys = await self._keys.found(name)
        if overrides and len(keys) > 1:
            raise ambiguous(name, len(keys))
        return keys

    async def _load_one(
        self,
        name: str,
        overrides: Overrides = NO_OVERRIDES,
        asker: RequestingVersion | None = None,
        only_missing: bool = False,
        is_requested: bool = True,
    ) -> None:
        """Load one model, in any mode; with ``only_missing`` nothing happens when it serves by then."""
        # Counted while the operation is queued too: the files are in memory from now on.
        with self._quota.holding(name, overrides.size):
            async with self._turn(name, asker, is_requested=is_requested) as operation:
                # Models ask for loads within requests, or while they are loaded themselves.
                operation.is_awaited = only_missing or asker is not None
                await self._load_found(name, overrides, only_missing, operation)

    async def _load_found(self, name: str, overrides: Overrides, only_missing: bool, operation: Operation) -> None:
        # Asked in its turn: the operation before it may have loaded the model.
        if only_missing and not self.is_loadable(name):
            return
        if only_missing:
            # A request says nothing about its files, which may still be copied there.
            await in_thread(wait_until_still, self._catalog, name, operation.check_wanted)
        before = self.entries.get(name)
        files = before.files if before is not None and not overrides else None
        known = files if before is not None and before.serving else None
        # A model that serves is not replaced by a copy of unknown age.
        may_be_old = before is None or not before.serving
        find = partial(self._settings.finder.find, self._catalog, name, overrides, known, may_be_old)
        found = await self._find(name, in_thread(find))
        async with self._trying(self._entry(name), found) as entry:
            # An ensemble with borrowed members is loaded all the same: those of its own namespace may have come.
            if found.files is not None and found.files == known and not self._ensembles.borrows(name):
                note(entry.ready(), "")
                return
            is_unchanged = found.files is not None and found.files == files
            # A request on demand needs the reason as an error.
            if is_unchanged and not only_missing and (problem := self._ensembles.mismatch(name)):
                logger.warning("'%s' stays unloaded, nothing of it has changed: %s", name, problem)
                return
            kept = await in_thread(unchanged_versions, entry.read, known, found)
            await self._take_up(entry, found, operation, kept)

    async def follow(
        self, name: str, source: ModelSource | RemoteModel | None, unchanged: frozenset[int] = frozenset()
    ) -> bool:
        """Follow a change in the repositories: load a model from ``source``, or unload it where that is None.

        Versions that are ``unchanged`` and serve stay as they are.

        Returns:
            Whether versions from ``source`` serve now. Otherwise the earlier ones still do.

        Raises:
            UnavailableError: too many operations are queued, or the server is stopping.
            StoreError: it could not be fetched from its remote repository.
        """
        async with self._operations.turn(name, undoes=source is None, is_requested=False) as operation:
            if source is None:
                self._unload(name)
                return False
            entry = self.entries.get(name)
            before = entry.serving if entry is not None else None
            known = entry.files if entry is not None and entry.serving else None
            try:
                found = await self._find(name, self._first(source, known))
                async with self._trying(self._entry(name), found) as entry:
                    # Remote files are known by their folder in the mirror: the same folder has the same content.
                    if not isinstance(source, ModelSource) and found.files == known:
                        note(entry.ready(), "")
                    else:
                        await self._take_up(entry, found, operation, unchanged)
            except UnavailableError:
                # No fault of the model: polling tries it again.
                raise
            except NaiadError as error:
                # Polling fetches again after an error of the store, and leaves a broken model alone until it changes.
                if isinstance(error.__cause__, StoreError):
                    raise error.__cause__ from None
                # All other problems were noted where they were found.
                if isinstance(error, TooLargeError):
                    self.note_problem(name, error)
                # Of a model without a version that served, the versions that could be loaded serve.
                entry = self.entries.get(name)
                return before is None and entry is not None and entry.serving is not None
            return True

    async def change_config(self, key: str, change: ConfigChange) -> None:
        """Serve a loaded model with another configuration, in any mode. It stays as it is when that fails.

        Nothing is evicted for it: a model that serves well does not push others out.

        Raises:
            UnavailableError: the model does not serve, or its files are not those that it was loaded from.
            TooLargeError: ``--model-memory-budget`` has no room for it beside the other models.
            NaiadError: as ``load_model``.
        """
        async with self._operations.turn(key, is_requested=False) as operation:
            entry = changeable(self.entries.get(key), key)
            find = partial(self._settings.finder.find, self._catalog, key, NO_OVERRIDES, entry.files)
            found = await self._find(key, in_thread(find))
            async with self._trying(entry, found):
                found = changed(entry, found, change)
                self.memory.check_spare(entry, await self._in_place.growth(entry, found))
                await self._take_up(entry, found, operation)

    @asynccontextmanager
    async def _trying(self, entry: ModelEntry, found: Candidate) -> AsyncIterator[ModelEntry]:
        """Release the temporary folder of a candidate after its load."""
        try:
            yield entry
        finally:
            if (folder := found.folder) is not None:
                # In a thread: this calls the model's repository agents, and may remove files.
                await in_thread(folder.tried, any(v.folder is folder for v in entry.ready()))
            self._unknown.note(entry.name)

    async def _take_up(
        self, entry: ModelEntry, found: Candidate, operation: Operation, unchanged: frozenset[int] = frozenset()
    ) -> None:
        """Load a candidate, and replace the versions that serve; errors as ``load_model``."""
        if entry.unloading >= MAX_UNLOADING * len(found.versions):
            raise UnavailableError(
                f"{entry.unloading} earlier versions of model '{entry.name}' still finish their requests: load it "
                "again when they have ended"
            )
        if entry.serving and only_groups_differ(entry, found):
            async with self.memory.room_in_place(entry, await self._in_place.growth(entry, found), operation):
                if entry.serving:
                    await self._in_place.update(entry, found, operation)
                    self.versions.changed()
                    return
            # It was evicted for others while it waited for room.
        problem: NaiadError | None = None
        async with self.memory.room(entry, found, operation):
            if entry.serving:
                # Agents follow all versions of one load together.
                known = unchanged if found.folder is None else frozenset()
                await self.versions.replace(entry, found, operation, known)
            else:
                problem = await self.versions.load_first(entry, found, operation)
        # After ``room``, which has measured the versions that could be loaded: they serve all the same.
        if problem is not None:
            raise load_failed(entry.name, entry.versions.values(), problem)

    async def unload_model(
        self, name: str, unload_dependents: bool = False, asker: RequestingVersion | None = None
    ) -> None:
        """Unload a model: it refuses new requests from now on, and is closed after its last response.

        Nothing waits for that. An unknown model counts as unloaded. With ``unload_dependents`` the models are unloaded
        too that were loaded for an ensemble, once no other ensemble needs them.

        Raises:
            UnavailableError: the server does not run in explicit mode, or too many operations are queued.
            ServerStoppingError: the server is stopping.
        """
        self._check_explicit()
        for key in self._keys.known(name):
            async with self._turn(key, asker, undoes=True):
                # Now: an ensemble that is unloaded has no members any more.
                members = self._ensembles.members_of_entry(key) if unload_dependents else ()
                self._ensembles.not_wanted(key)
                self._unload(key)
            await self._ensembles.unload_members(members)

    # Members of ensembles

    async def load_member(self, name: str, asker: RequestingVersion) -> bool:
        # In explicit mode members are loaded; in other modes the operations that are under way are waited for.
        name = self._keys.one_seen(name)
        async with self._turn(name, asker, is_requested=False) as operation:
            operation.is_awaited = asker.operation is not None and asker.operation.is_awaited
            entry = self.entries.get(name)
            # The start tries each model once: a member that failed is not tried again for its ensemble.
            is_tried = entry is not None and (entry.serving is not None or (entry.has_failed and not self.loaded))
            if is_tried or not (self._is_explicit or self.loadable_key(name)):
                return False
            await self._load_found(name, NO_OVERRIDES, False, operation)
            entry = self.entries.get(name)
            return entry is not None and entry.serving is not None

    async def key_within(self, name: str, namespace: str) -> str:
        own = f"{namespace}/{name}"
        entry = self.entries.get(own)
        if entry is not None and (entry.serving is not None or not self.loaded):
            return own
        try:
            keys = await self._keys.found(name) if self._is_explicit else self._keys.seen(name)
        except NaiadError:
            # The load of the member raises the same.
            keys = []
        return own if own in keys else keys[0] if len(keys) == 1 else name

    async def unload_member(self, name: str) -> None:
        async with self._turn(name, None, undoes=True, is_requested=False):
            self._ensembles.not_wanted(name)
            self._unload(name)

    def retire_ensemble(self, entry: ModelEntry, version: VersionEntry, problem: NaiadError) -> None:
        logger.warning("unloading '%s' version %d: %s", entry.name, version.version, problem)
        # A missing member counts as an unload, any other problem as a failed load (``VersionEntry.was_unloaded``).
        if isinstance(problem, MissingMemberError):
            version.reason_gone = f"{UNLOADED}: {problem}"
            entry.files = None
        else:
            entry.problem = problem
        self.versions.retire(entry, version)
        entry.choose_serving()

    def begin_again(self, name: str) -> asyncio.Task[None]:
        # Without a callback: the load notes its error in the index and in the log.
        return self._begin(self._load_one(name, is_requested=False), lambda error: None)

    def _unload(self, name: str) -> None:
        entry = self.entries.get(name)
        if entry is None:
            return
        entry.problem = None
        entry.files = None
        note((v for v in entry.versions.values() if v.state is ModelState.UNAVAILABLE), UNLOADED)
        self.versions.retire_all(entry)
        # Routes outlast the versions that they name.
        if not entry.versions and entry.routing is None:
            del self.entries[name]
        self._unknown.note(name)

    def begin_load(self, name: str, overrides: Overrides, done: Done, asker: RequestingVersion | None = None) -> None:
        """Start ``load_model``; ``done`` gets its error, or None."""
        if self.demand is not None:
            # Before the operation's turn: requests that come until then may wait for this load.
            for key in self._keys.seen(name):
                self.demand.allow(key)
        self._begin(self.load_model(name, overrides, asker), done)

    def begin_unload(
        self, name: str, unload_dependents: bool, done: Done, asker: RequestingVersion | None = None
    ) -> None:
        """Start ``unload_model``; ``done`` gets its error, or None."""
        if self.demand is not None and self._is_explicit:
            # Before the operation's turn too. Known names only: callers could make up any number of others.
            for key in self.names.known.intersection(self._keys.seen(name)):
                self.demand.withhold(key)
        self._begin(self.unload_model(name, unload_dependents, asker), done)

    def loadable_key(self, name: str) -> str:
        """The key of the one model of a name that a request may load; "" where there is none."""
        keys = self._keys.seen(name)
        return keys[0] if self.demand is not None and len(keys) == 1 and self.demand.can_load(keys[0]) else ""

    def is_loadable(self, name: str) -> bool:
        """Whether the model is in a repository, and no version of it serves."""
        entry = self.entries.get(name)
        # Not during the start, which tries each model itself.
        return (entry is None or entry.serving is None) and name in self.names.known and self.loaded

    def begin_demanded(self, name: str, done: Done) -> None:
        """Start to load a model for a request, unless it serves by then; ``done`` as in ``begin_load``."""
        self._begin(self._load_one(name, only_missing=True), done)

    def has_operation(self, name: str) -> bool:
        return self._operations.concern(name)

    def _retire_model(self, entry: ModelEntry, why: str) -> None:
        """Evict a model: without an operation on it, or within its own."""
        entry.files = None
        for version in entry.ready():
            version.reason_gone = f"{UNLOADED}: {why}"
        self.versions.retire_all(entry)
        # At once: no request may find an ensemble whose member is gone.
        self._ensembles.look()

    def begin_listing(self, done: Done) -> None:
        """Start to read the names of the models in the repositories again, in explicit mode."""
        if not self._is_explicit:
            done(None)
            return
        self.names.refresh(done)

    def _begin(self, work: Coroutine[Any, Any, None], done: Done) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        # The loop refers to its tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, done))
        return task

    def _ended(self, done: Done, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            done(UnavailableError("the server has ended"))
            return
        error = task.exception()
        if error is not None and not isinstance(error, NaiadError):
            logger.error("an operation on a model failed", exc_info=error)
            error = InternalError("the operation failed inside the server, see its log")
        done(error)

    def _check_explicit(self) -> None:
        if not self._is_explicit:
            raise UnavailableError(_NOT_EXPLICIT)

    def _turn(
        self, name: str, asker: RequestingVersion | None, undoes: bool = False, is_requested: bool = True
    ) -> AbstractAsyncContextManager[Operation]:
        if asker is not None and asker.permit is not None:
            # The operation that it waits for may need the permit.
            asker.permit.release()
        return self._operations.turn(name, asker.operation if asker is not None else None, undoes, is_requested)

    async def _find(self, name: str, finding: Awaitable[Candidate]) -> Candidate:
        try:
            return await finding
        except Exception as error:
            problem = as_load_error(error)
            self.note_problem(name, problem)
            # ``follow`` looks at the cause.
            raise not_found(name, problem) from error

    def is_settled(self, name: str) -> bool:
        """Whether every version of a model serves that its last load wanted.

        A model that was evicted and that a request loads again counts as serving.
        """
        entry = self.entries.get(name)
        if entry is None or entry.problem is not None:
            return False
        if entry.serving is None and (self.demand is None or not entry.versions):
            return False
        return all(v.was_unloaded or (v.state is ModelState.READY and not v.reason) for v in entry.versions.values())

    def unfetched(self) -> frozenset[str]:
        """The models that could not be fetched from a remote repository."""
        return frozenset(name for name, entry in self.entries.items() if isinstance(entry.problem, StoreError))

    def note_problem(self, name: str, problem: NaiadError) -> None:
        """Show in the index why a model could not be loaded, or was not replaced."""
        logger.error("failed to load '%s': %s", name, located(problem))
        entry = self.entries.get(name)
        if entry is not None and entry.serving:
            note(entry.ready(), not_reloaded(problem))
        # A name that a caller made up gets no entry.
        elif entry is not None or name in self.names.known:
            entry = self._entry(name)
            entry.problem = problem
            note((v for v in entry.versions.values() if v.state is ModelState.UNAVAILABLE), str(problem))
            self._unknown.note(name)

    # The end

    async def unload_all(self, timeout: float) -> bool:
        """Refuse new requests, finish the accepted ones and the loads under way, and close every model.

        Returns:
            False when that took longer than ``timeout`` seconds.
        """
        deadline = monotonic() + timeout
        # In this order: loads that wait for memory fail and loads under way are given up, so that operations end.
        self.memory.close()
        self._operations.close()
        self._in_place.close()
        self._retire_all()
        is_idle = await self._operations.wait_idle(timeout)
        # Versions that were still loading serve by now.
        self._retire_all()
        return await self._draining.finish(max(0.0, deadline - monotonic())) and is_idle

    def _retire_all(self) -> None:
        for entry in self.entries.values():
            self.versions.retire_all(entry)
