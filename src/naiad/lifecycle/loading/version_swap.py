"""Changing which versions of a model serve: the first ones, replacements, and unloads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from naiad.execution.sequence.model import SequenceModel
from naiad.lifecycle.loading.config_diff import take_policy
from naiad.lifecycle.state.load_errors import is_of_the_model, load_failed, not_reloaded
from naiad.lifecycle.state.model_table import UNLOADED, ModelEntry, ModelRoutes, VersionEntry, note
from naiad.lifecycle.state.states import ModelState
from naiad.lifecycle.traffic.routes import Routing, configured_routes

if TYPE_CHECKING:
    from naiad.errors import NaiadError
    from naiad.execution.model.interface import LoadedVersion, ServingModel
    from naiad.lifecycle.loading.version_loader import VersionLoader
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.draining import Draining
    from naiad.lifecycle.state.model_requests import CallableModels
    from naiad.lifecycle.state.operations import Operation

logger = logging.getLogger("naiad")


class ServingObserver(Protocol):
    """Follows which models serve. Called on the event loop."""

    def on_serving(self, model: LoadedVersion) -> None:
        """A version is loaded, and gets its first request after this call."""

    def on_unloading(self, model: ServingModel) -> None:
        """A version, or the routes of several, gets no further requests: forget what was remembered of it."""


class VersionSwap:
    """Changes which versions of a model serve. Used on the event loop only, inside an operation on the model.

    Args:
        loads: loads each version.
        draining: the versions that are draining.

    Attributes:
        directory: the models that models call; None until ``ModelManager.subscribe``.
        observers: called in their order.
        when_changed: called when other versions of a model serve, or its routes or instances have changed.
    """

    def __init__(self, loads: VersionLoader, draining: Draining) -> None:
        self.directory: CallableModels | None = None
        self.observers: list[ServingObserver] = []
        self._loads = loads
        self._draining = draining
        self.when_changed: list[Callable[[], object]] = []

    @property
    def retiring(self) -> frozenset[asyncio.Task[bool]]:
        """What ends with the close of each version that drains."""
        return self._draining.retiring

    def changed(self) -> None:
        """Call those of ``when_changed``."""
        for call in self.when_changed:
            call()

    async def load_first(self, entry: ModelEntry, found: Candidate, operation: Operation) -> NaiadError | None:
        """Load a model without a version that serves: each version serves as soon as it is loaded.

        Returns:
            The error of a version that cannot be loaded, if there is one.
        """
        # Read before the problem is cleared: readiness ignores a load unless it follows a failure.
        fresh = [VersionEntry(version, follows_failure=entry.has_failed) for version in found.versions]
        entry.problem = None
        self._configure_routes(entry, found)
        _show(entry, fresh)

        async def load(version: VersionEntry) -> NaiadError | None:
            problem = await self._load(entry.name, version, found, operation)
            entry.choose_serving()
            return problem

        problems = await asyncio.gather(*(load(version) for version in fresh))
        _warn_of_routes(entry)
        problem = next(filter(None, problems), None)
        # Without files the next load tries the failed versions again, although nothing has changed.
        entry.files, entry.read = None if problem else found.files, found.read
        if problem and is_of_the_model(problem):
            # The reference shows no versions of such a model.
            entry.problem = problem
            for version in fresh:
                if version.state is ModelState.UNAVAILABLE:
                    entry.versions.pop(version.version, None)
        return problem

    async def replace(
        self, entry: ModelEntry, found: Candidate, operation: Operation, unchanged: frozenset[int]
    ) -> None:
        """Load a model beside its copy that serves, and replace that once all versions are loaded.

        Raises:
            NaiadError: a version cannot be loaded; the versions that serve stay.
        """
        kept = {v.version for v in entry.ready()} & unchanged & set(found.versions)
        fresh = [VersionEntry(version) for version in found.versions if version not in kept]
        failures = await asyncio.gather(*(self._load(entry.name, v, found, operation) for v in fresh))
        if problem := next(filter(None, failures), None):
            for version in fresh:
                if version.state is ModelState.READY:
                    self.retire(entry, version)
            note(entry.ready(), not_reloaded(problem))
            entry.note_again(fresh)
            raise load_failed(entry.name, fresh, problem)
        # The server may have begun to stop meanwhile: then none of them serves.
        staying = [v for v in entry.ready() if v.version in kept]
        before = [v for v in entry.ready() if v.version not in kept]
        note(staying, "")
        take_policy(staying, found)
        self._configure_routes(entry, found)
        _show(entry, fresh)
        # Before the old versions drain: they wait for live sequences only if another version follows them.
        _hand_over(before, entry.ready())
        for version in before:
            self.retire(entry, version)
        entry.choose_serving()
        _warn_of_routes(entry)
        # A version that took no other's place was shown only now, after ``_load`` had told of it.
        self.changed()
        entry.files, entry.read = found.files, found.read

    async def _load(
        self, name: str, version: VersionEntry, found: Candidate, operation: Operation
    ) -> NaiadError | None:
        problem = await self._loads.load(name, version, found, operation, self.directory)
        if version.model is not None:
            for observer in self.observers:
                observer.on_serving(version.model)
        return problem

    def retire(self, entry: ModelEntry, version: VersionEntry) -> None:
        """Drain a version that serves. The caller has ``entry`` choose again which versions serve."""
        model = version.model
        self._draining.begin(entry, version)
        if model is not None:
            self._forget(model)

    def retire_all(self, entry: ModelEntry) -> None:
        """Drain all versions of a model that serve."""
        for version in entry.ready():
            self.retire(entry, version)
        entry.choose_serving()

    def _forget(self, model: ServingModel) -> None:
        """Have the observers forget a version, or the responder to a route."""
        for observer in self.observers:
            observer.on_unloading(model)

    def _configure_routes(self, entry: ModelEntry, found: Candidate) -> None:
        """Take the routes that a configuration has, unless it had the same at the load before."""
        routes = configured_routes(found.read.config)
        if routes or entry.routing is not None:
            self.routing(entry).configure(routes)

    def routing(self, entry: ModelEntry) -> ModelRoutes:
        """The routes of a model, made at the first call."""
        if entry.routing is None:
            entry.routing = Routing(entry.name, self._forget, changed=self.changed)
            entry.choose_serving()
        return entry.routing


def _warn_of_routes(entry: ModelEntry) -> None:
    """Say which versions the routes of a model name in vain: a shadow that is not there fails no request."""
    if entry.routing is not None:
        for version, reason in sorted(entry.routing.problems.items()):
            logger.warning("version %d of model '%s' takes no requests by its routes: %s", version, entry.name, reason)


def _show(entry: ModelEntry, fresh: Iterable[VersionEntry]) -> None:
    """Show versions in the index, in place of earlier ones of the same number."""
    entry.versions.update({version.version: version for version in fresh})
    # Versions that failed earlier are not wanted any more.
    note((v for v in entry.versions.values() if v.state is ModelState.UNAVAILABLE), UNLOADED)
    entry.forget_gone()


def _hand_over(before: Sequence[VersionEntry], ready: Sequence[VersionEntry]) -> None:
    """Let sequences stay to their ends on versions that are being replaced.

    The version that serves then passes their requests on, if its tensors are the same. A version that no request names
    may be replaced by one of another number.
    """
    gone = [version.model for version in before]
    for version in ready:
        # Taken now: ``begin`` cuts the reference.
        model = version.model
        if isinstance(model, SequenceModel) and model not in gone:
            for old in gone:
                if isinstance(old, SequenceModel):
                    model.follow(old)
