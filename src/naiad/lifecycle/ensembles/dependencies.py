"""Ensembles among the models: their members are loaded with them, and they come and go with their members.

An ensemble that loses a member is unloaded with it, and loaded again once all members are there. Used on the event loop
only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from naiad.cache.local import LocalCache
from naiad.config.ensemble import EnsembleSpec
from naiad.config.labels import with_labels
from naiad.config.resolve import finish, prepare
from naiad.errors import InternalError, InvalidArgumentError, NaiadError, UnavailableError
from naiad.execution.ensemble.model import EnsembleModel
from naiad.lifecycle.ensembles.member_lease import MemberLeases
from naiad.lifecycle.naming import resolve
from naiad.lifecycle.state.load_threads import in_thread
from naiad.lifecycle.state.model_table import ModelEntry, VersionEntry
from naiad.lifecycle.state.operations import Operation, WaitsForItselfError
from naiad.lifecycle.state.states import ModelState
from naiad.repository.local.namespaces import namespace_of
from naiad.scheduling.ensemble.graph import EnsembleError, build

if TYPE_CHECKING:
    from naiad.config.read import ReadConfig
    from naiad.config.source import ModelSource
    from naiad.config.spec import ModelSpec
    from naiad.execution.model.interface import LoadedVersion, ServingModel
    from naiad.execution.model_directory import ModelDirectory
    from naiad.lifecycle.loading.load_version import LoadSettings
    from naiad.lifecycle.naming import ModelKeys
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.model_requests import RequestingVersion
    from naiad.lifecycle.state.wait_graph import WaitGraph
    from naiad.telemetry.metrics.custom import CustomMetrics

logger = logging.getLogger("naiad")


class MissingMemberError(EnsembleError):
    """A member of an ensemble does not serve; the ensemble is loaded again once it does."""


class CircularEnsembleError(EnsembleError):
    """An ensemble is a member of itself, perhaps through other ensembles."""


class EnsembleManager(Protocol):
    """The part of the manager that ensembles use."""

    entries: dict[str, ModelEntry]

    def has_operation(self, name: str) -> bool:
        """Whether an operation on a model runs or is queued."""

    async def key_within(self, name: str, namespace: str) -> str:
        """The key of a model that an ensemble of a namespace names: its own namespace comes before others."""

    async def load_member(self, name: str, asker: RequestingVersion) -> bool:
        """Load a model if it may be loaded and does not serve; whether it was loaded.

        Raises:
            InvalidArgumentError: it waits for the asker.
            NaiadError: it could not be loaded.
        """

    def retire_ensemble(self, entry: ModelEntry, version: VersionEntry, problem: NaiadError) -> None:
        """Unload a version that lost a member."""

    def begin_again(self, name: str) -> asyncio.Task[None]:
        """Start to load a model once more."""

    async def unload_member(self, name: str) -> None:
        """Unload a model that was loaded for an ensemble only."""


class Ensembles:
    """Loads the members of ensembles with them, and unloads and reloads ensembles as their members change.

    Args:
        owner: the manager.
        keys: the keys of the models that ensembles name.
        settings: how models are loaded.
        graph: what waits for what.
        in_turn: one is loaded after the other.

    Attributes:
        member_leases: the leases on their members while they are loaded.
    """

    def __init__(
        self,
        owner: EnsembleManager,
        keys: ModelKeys,
        settings: LoadSettings,
        graph: WaitGraph,
        in_turn: bool = False,
    ) -> None:
        self.member_leases = MemberLeases(in_turn, self.members_within, graph)
        self._owner = owner
        self._keys = keys
        self._settings = settings
        # The ensembles that have requests, draining ones included.
        self._all: WeakSet[EnsembleModel] = WeakSet()
        # Ensembles without all of their members, as written: loaded again when these serve.
        self._lacking: dict[str, ModelSpec] = {}
        # The ensembles as written: their configurations name the members without namespaces.
        self._written: WeakKeyDictionary[EnsembleModel, ModelSpec] = WeakKeyDictionary()
        # Models that were loaded for an ensemble, and not on request.
        self._loaded_for_ensembles: set[str] = set()
        self._is_looking = False
        self._loads: dict[asyncio.Task[None], str] = {}

    # Loading

    async def load(
        self,
        name: str,
        version: int,
        found: Candidate,
        asker: RequestingVersion,
        models: ModelDirectory | None,
        metrics: CustomMetrics,
    ) -> tuple[EnsembleModel, Any]:
        """Load an ensemble, its members first; the model and its completed configuration message.

        Raises:
            NaiadError: it cannot be loaded.
        """
        spec, config = await in_thread(read_ensemble, found.source, version, found.read)
        written, spec = spec, await self._in_namespace(spec, found.source.namespace)
        if models is None or spec.ensemble is None:
            raise InternalError(f"there are no models that ensemble '{spec.name}' could be made of")
        members = spec.ensemble.models
        # Nothing is loaded for it then, so it needs neither a turn nor leases.
        if self._are_there(name, members):
            model = self._make(name, version, spec, written, models, metrics, {})
        else:
            if asker.permit is not None:
                # The loads of its members may need the permit.
                asker.permit.release()
            async with self.member_leases.holding(
                asker.operation or Operation(name), map(self._keys.one_seen, members)
            ):
                failures = await self._bring_all(name, members, asker)
                model = self._make(name, version, spec, written, models, metrics, failures)
        # The members decide; the configuration need not say it, and callers are shown it.
        config.model_transaction_policy.decoupled = model.spec.decoupled
        self.member_leases.extend(name, map(self._keys.one_seen, members))
        self._all.add(model)
        self._lacking.pop(name, None)
        return model, config

    def _make(
        self,
        name: str,
        version: int,
        spec: ModelSpec,
        written: ModelSpec,
        models: ModelDirectory,
        metrics: CustomMetrics,
        failures: dict[str, NaiadError],
    ) -> EnsembleModel:
        cache = self._cache_of(spec)
        try:
            self._check(spec, failures)
            model = EnsembleModel(spec, version, models, cache, self._settings.budget, metrics=metrics)
        except (EnsembleError, UnavailableError):
            # The routes of a member may lead nowhere for now.
            self._note_lacking(name, written)
            raise
        self._written[model] = written
        return model

    def _are_there(self, name: str, members: Iterable[str]) -> bool:
        """Whether all members serve, and no operation is under way that would change one."""
        for member in members:
            entry = self._entry(member)
            if member == name or entry is None or entry.serving is None or self._owner.has_operation(entry.name):
                return False
        return True

    def _cache_of(self, spec: ModelSpec) -> LocalCache | None:
        cache = self._settings.cache if spec.is_cached else None
        if cache is None or isinstance(cache, LocalCache):
            return cache
        # Servers that share a Redis may have other members under the same names.
        logger.warning("the answers of ensemble '%s' are not kept: Redis keeps those of its members only", spec.name)
        return None

    async def _bring_all(self, name: str, members: Iterable[str], asker: RequestingVersion) -> dict[str, NaiadError]:
        """Load all members of an ensemble; the errors of those that could not be loaded."""
        failures: dict[str, NaiadError] = {}
        for member in members:
            try:
                await self._bring(name, member, asker)
            except CircularEnsembleError:
                raise
            except NaiadError as error:
                failures[member] = error
        return failures

    async def _bring(self, name: str, member: str, asker: RequestingVersion) -> None:
        try:
            if member == name:
                raise WaitsForItselfError(member)
            if await self._owner.load_member(member, asker):
                self._loaded_for_ensembles.add(member)
        except WaitsForItselfError:
            raise CircularEnsembleError(
                f"circular dependency between ensembles: {member} -> ... -> {name} -> {member}"
            ) from None
        except NaiadError as error:
            entry = self._entry(member)
            # The member found the cycle first, in a load of its own: its text names the models.
            if entry is not None and isinstance(entry.problem, CircularEnsembleError):
                raise CircularEnsembleError(str(entry.problem)) from error
            raise

    async def _in_namespace(self, spec: ModelSpec, namespace: str) -> ModelSpec:
        """The specification with keys for members: those of the ensemble's own namespace come before others."""
        if not namespace or spec.ensemble is None:
            return spec
        found = {model: await self._owner.key_within(model, namespace) for model in spec.ensemble.models}
        return _with_members(spec, found)

    def _with_own(self, name: str, spec: ModelSpec) -> ModelSpec:
        """The specification of an ensemble as written, with the members of its own namespace that serve now."""
        namespace = namespace_of(name)
        if not namespace or spec.ensemble is None:
            return spec
        entries = self._owner.entries
        own = {model: f"{namespace}/{model}" for model in spec.ensemble.models}
        return _with_members(spec, {m: key for m, key in own.items() if key in entries and entries[key].serving})

    def _check(self, spec: ModelSpec, failures: dict[str, NaiadError]) -> None:
        """Check that all members serve. The texts are the reference's own."""
        if spec.ensemble is None:
            return
        unknown = [member for member in spec.ensemble.models if self._entry(member) is None]
        if unknown:
            raise MissingMemberError(
                f"ensemble {spec.name} contains models that are not available or ambiguous: {', '.join(unknown)}"
            )
        for step in spec.ensemble.steps:
            entry = self._entry(step.model)
            if entry is None or entry.serving is None:
                problem = _why(entry) or str(failures.get(step.model, ""))
                why = f" Model '{step.model}' loading failed with error: {problem}" if problem else ""
                raise MissingMemberError(
                    f"ensemble '{spec.name}' depends on '{step.model}' which has no loaded version.{why}"
                )
            ready = {version.version for version in entry.ready()}
            if step.version is not None and step.version not in ready:
                raise MissingMemberError(
                    f"ensemble '{spec.name}' depends on '{step.model}' whose required version {step.version} is not "
                    "loaded."
                )

    def _entry(self, name: str) -> ModelEntry | None:
        try:
            return resolve(self._owner.entries, name)
        except InvalidArgumentError:
            return None

    # Changes

    def wanted(self, name: str) -> None:
        """Note that a model was requested: it stays when an ensemble is unloaded with its members."""
        self._loaded_for_ensembles.discard(name)

    def not_wanted(self, name: str) -> None:
        """Note that a model is unloaded on request: it is not loaded again by itself."""
        self._lacking.pop(name, None)
        self._loaded_for_ensembles.discard(name)

    def on_serving(self, model: LoadedVersion) -> None:
        """Look at the ensembles soon: a member may have come."""
        self.look_soon()

    def look_soon(self) -> None:
        """Look at the ensembles in the next turn of the loop, once for any number of changes.

        Until then each one looks its members up before its next request.
        """
        for ensemble in self._all:
            ensemble.mark_stale()
        if not self._is_looking and (self._all or self._lacking):
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self.look)

    def on_unloading(self, model: ServingModel) -> None:
        """Forget a model in all ensembles; their requests that began with it still find it."""
        for ensemble in self._all:
            ensemble.forget(model)
        self.look_soon()

    def look(self, but: Collection[str] = ()) -> None:
        """Unload ensembles that lost a member, and reload those whose members serve again, except ``but``."""
        self._is_looking = False
        while self._refresh_all():
            # Ensembles may be members of others.
            continue
        for name in self._with_others().difference(but):
            self._load_again(name)
        for name, spec in list(self._lacking.items()):
            if name not in but and self._fits(self._with_own(name, spec)):
                del self._lacking[name]
                self._load_again(name)

    def _note_lacking(self, name: str, written: ModelSpec) -> None:
        # A caller may have made the name up: once its entry is forgotten, this must not grow by it.
        for gone in self._lacking.keys() - self._owner.entries.keys():
            del self._lacking[gone]
        self._lacking[name] = written

    def _load_again(self, name: str) -> None:
        task = self._owner.begin_again(name)
        self._loads[task] = name
        task.add_done_callback(self._loads.pop)

    def _with_others(self) -> set[str]:
        """Ensembles with members of other namespaces although their own has these by now, unless they load already."""
        return {
            entry.name
            for entry, _, model in self._serving()
            if namespace_of(entry.name)
            and not self._owner.has_operation(entry.name)
            and set(members_of(self._with_own(entry.name, self._written[model]))) - set(members_of(model.spec))
            & self._owner.entries.keys()
        }

    async def settled(self) -> None:
        """Wait until the ensembles whose members serve again are loaded, or have failed; each is tried once."""
        # An ensemble may fit and still fail to load: without this set it would be tried for ever.
        tried: set[str] = set()
        self.look()
        while self._loads:
            tried.update(self._loads.values())
            await asyncio.wait(set(self._loads))
            self.look(tried)

    def _fits(self, spec: ModelSpec) -> bool:
        """Whether an ensemble could be loaded with the models that are there."""
        return self._problem(spec) is None

    def mismatch(self, name: str) -> str:
        """Why an ensemble does not fit the models of its steps, which all serve; "" where loading it may help."""
        written = self._lacking.get(name)
        problem = None if written is None else self._problem(self._with_own(name, written))
        # A member that is missing is loaded with its ensemble, and routes may lead somewhere again.
        return "" if isinstance(problem, (MissingMemberError, UnavailableError)) else str(problem or "")

    def _problem(self, spec: ModelSpec) -> EnsembleError | UnavailableError | None:
        """Why an ensemble could not be loaded with the models that are there, None if it could."""
        try:
            self._check(spec, {})
            build(spec, self._specs(spec))
        except (EnsembleError, UnavailableError) as error:
            return error
        return None

    def _specs(self, spec: ModelSpec) -> list[ModelSpec]:
        """The specifications of the models of all steps, which all serve.

        Raises:
            UnavailableError: the routes of a model lead to no version.
        """
        found: list[ModelSpec] = []
        for step in () if spec.ensemble is None else spec.ensemble.steps:
            entry = self._entry(step.model)
            if entry is not None and entry.routing is not None and entry.answering is None and step.version is None:
                raise entry.routing.no_default()
            serving = {} if entry is None else {model.version: model for model in entry.loaded()}
            found.append(serving[max(serving) if step.version is None else step.version].spec)
        return found

    def _refresh_all(self) -> bool:
        """Renew ensembles whose members have changed, and unload those that cannot run; whether one has changed."""
        for entry, version, model in list(self._serving()):
            try:
                self._check(model.spec, {})
                if model.refresh_members():
                    # Ensembles of which it is a member have to be renewed too.
                    return True
            except NaiadError as error:
                if isinstance(error, UnavailableError):
                    # Its routes lead to no version for now.
                    continue
                self._owner.retire_ensemble(entry, version, error)
                self._note_lacking(entry.name, self._written[model])
                return True
        return False

    def _serving(self) -> Iterator[tuple[ModelEntry, VersionEntry, EnsembleModel]]:
        for entry in self._owner.entries.values():
            for version in entry.versions.values():
                if version.state is ModelState.READY and isinstance(version.model, EnsembleModel):
                    yield entry, version, version.model

    async def unload_members(self, names: Iterable[str]) -> None:
        """Unload models that were loaded for an ensemble only, unless another ensemble needs them."""
        for name in sorted(names):
            needed = {member for _, _, model in self._serving() for member in members_of(model.spec)}
            if name in self._loaded_for_ensembles and name not in needed:
                # Before the unload, which leaves it without members.
                inner = self.members_of_entry(name)
                await self._owner.unload_member(name)
                await self.unload_members(inner)

    def borrows(self, name: str) -> bool:
        """Whether a model is an ensemble with members of other namespaces: its own may have come."""
        own = namespace_of(name)
        return bool(own) and any(namespace_of(key) != own for key in map(self._key, self.members_of_entry(name)))

    def _key(self, member: str) -> str:
        entry = self._entry(member)
        return member if entry is None else entry.name

    def members_within(self, name: str) -> set[str]:
        """All members of an ensemble that serves, the members of its members included; none for other models."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            for member in map(self._keys.one_seen, self.members_of_entry(waiting.pop())):
                if member not in found:
                    found.add(member)
                    waiting.append(member)
        return found

    def members_of_entry(self, name: str) -> set[str]:
        """The members of the versions of an ensemble that serve; none for other models."""
        entry = self._entry(name)
        found = () if entry is None else entry.loaded()
        return {member for model in found for member in members_of(model.spec)}


def members_of(spec: ModelSpec) -> tuple[str, ...]:
    """The members of an ensemble; none for other models."""
    return () if spec.ensemble is None else spec.ensemble.models


def _with_members(spec: ModelSpec, keys: Mapping[str, str]) -> ModelSpec:
    if spec.ensemble is None:
        return spec
    steps = tuple(replace(step, model=keys.get(step.model, step.model)) for step in spec.ensemble.steps)
    return replace(spec, ensemble=EnsembleSpec(steps, spec.ensemble.max_inflight))


def _why(entry: ModelEntry | None) -> str:
    """Why a model has no version that serves, "" where that is not known."""
    if entry is None:
        return ""
    failed = (v for v in entry.versions.values() if v.state is ModelState.UNAVAILABLE and not v.was_unloaded)
    lines = " ".join(f"version {v.version} is at UNAVAILABLE state: {v.reason};" for v in failed)
    return lines or str(entry.problem or "")


def read_ensemble(source: ModelSource, version: int, read: ReadConfig) -> tuple[ModelSpec, Any]:
    """The specification of an ensemble and its configuration message; errors as ``finish``."""
    prepared = prepare(source, version, read=read)
    return with_labels(finish(prepared), source.folder(version), prepared.origin), prepared.config
