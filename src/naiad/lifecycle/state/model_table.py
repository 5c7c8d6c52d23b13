"""The table of models and of their versions. Changed on the event loop only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.errors import InternalError, NaiadError, UnavailableError
from naiad.execution.model.interface import LoadedVersion
from naiad.lifecycle.state.states import NEXT, ModelState

if TYPE_CHECKING:
    from naiad.config.read import ReadConfig
    from naiad.config.routes import Routes
    from naiad.config.source import ModelSource
    from naiad.execution.model.interface import ServingModel
    from naiad.lifecycle.state.model_requests import RequestingVersion
    from naiad.repository.changes.fingerprint import Fingerprint
    from naiad.repository.local.temporary_folder import ModelFolder
    from naiad.telemetry.metrics.shadow import ShadowStatistics

UNLOADED = "unloaded"
"""The reason of a version that was unloaded on request."""
MAX_GONE: Final = 64
"""How many unloaded versions of a model are remembered; requests may bring ever new numbers."""


class ModelRoutes(Protocol):
    """The routes of one model (``lifecycle/traffic/routes.py``), which outlast its versions."""

    routes: Routes
    problems: dict[int, str]

    def configure(self, routes: Routes) -> None:
        """Take the routes of a configuration, unless the load before brought the same."""

    def change(self, routes: Routes, known: Mapping[int, str]) -> None:
        """Take other routes.

        Raises:
            InvalidArgumentError: a version that they name cannot take requests.
        """

    def roll_back(self, known: Mapping[int, str]) -> None:
        """Return to the routes before the last change; errors as ``change``."""

    def follow(self, ready: Iterable[LoadedVersion]) -> None:
        """Route to these versions, ascending, from now on."""

    def default(self) -> ServingModel | None:
        """The responder to requests that name no version; None when no version of the split serves."""

    def alias(self, name: str) -> ServingModel | None:
        """The responder to an alias; None when there is no such alias.

        Raises:
            UnavailableError: its version does not serve.
        """

    def no_default(self) -> UnavailableError:
        """The error for requests while ``default`` is None."""

    @property
    def shadow_statistics(self) -> tuple[int, ShadowStatistics] | None:
        """The version that is the shadow, and its counters; None without a shadow."""

    def as_json(self) -> dict[str, Any]:
        """The routes as the API shows them."""


@dataclass(slots=True)
class VersionEntry:
    """One version of a model.

    Attributes:
        config: its completed configuration message, None before it is loaded.
        follows_failure: the load before it failed, so that readiness counts this one too.
        asker: its identity when it requests loads and unloads.
        source: the files that it was loaded from; None before it is loaded.
        folder: the temporary folder that it was loaded from, released when it is closed.
        reason_gone: its reason once it is unloaded; another one when the server unloaded it by itself.
    """

    version: int
    state: ModelState = ModelState.UNKNOWN
    reason: str = ""
    model: LoadedVersion | None = None
    config: Any = None
    asker: RequestingVersion | None = None
    source: ModelSource | None = None
    folder: ModelFolder | None = None
    follows_failure: bool = False
    reason_gone: str = UNLOADED

    @property
    def was_unloaded(self) -> bool:
        """Whether it is unloaded or draining, on request or for memory. A version that failed is not."""
        if self.state is ModelState.UNLOADING:
            return True
        return self.state is ModelState.UNAVAILABLE and self.reason in (UNLOADED, self.reason_gone)

    def become(self, state: ModelState, reason: str = "") -> None:
        """Change to ``state``.

        Raises:
            InternalError: ``state`` may not follow the present one.
        """
        if state not in NEXT[self.state]:
            raise InternalError(f"version {self.version} cannot go from {self.state!r} to {state!r}")
        self.state = state
        self.reason = reason


@dataclass(slots=True)
class ModelEntry:
    """One model by name.

    Attributes:
        problem: why it has no versions.
        serving: the highest version that is ready.
        answering: the recipient of requests that name no version: ``serving``, or the default route.
        routing: its routes, once it has had any.
        files: those of the repository that it was loaded from; None when they do not tell whether it is up to date.
        read: the configuration as written that it was loaded with.
        measured_bytes: the memory that it held when it was measured last, also before it was unloaded.
        loaded_ms: when it was loaded last, in milliseconds of wall-clock time.
        unloading: how many earlier copies still finish their requests.
    """

    name: str
    versions: dict[int, VersionEntry] = field(default_factory=dict)
    problem: NaiadError | None = None
    serving: LoadedVersion | None = None
    answering: ServingModel | None = None
    routing: ModelRoutes | None = None
    files: Fingerprint | None = None
    read: ReadConfig | None = None
    unloading: int = 0
    measured_bytes: int = 0
    loaded_ms: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no version is loaded, loading or draining."""
        return not self.unloading and all(v.state is ModelState.UNAVAILABLE for v in self.versions.values())

    @property
    def has_failed(self) -> bool:
        """Whether it, or a version of it, could not be loaded."""
        failed = (v.state is ModelState.UNAVAILABLE and not v.was_unloaded for v in self.versions.values())
        return self.problem is not None or any(failed)

    def ready(self) -> list[VersionEntry]:
        """The entries of the versions that serve, ascending."""
        return sorted((v for v in self.versions.values() if v.state is ModelState.READY), key=lambda v: v.version)

    def loaded(self) -> list[LoadedVersion]:
        """The models of ``ready``."""
        return [version.model for version in self.ready() if version.model is not None]

    def note_again(self, fresh: Iterable[VersionEntry]) -> None:
        """Show why versions failed again that had failed before."""
        for version in fresh:
            shown = self.versions.get(version.version)
            if shown is not None and shown.state is version.state is ModelState.UNAVAILABLE and not shown.was_unloaded:
                shown.reason = version.reason

    def forget_gone(self) -> None:
        """Forget the lowest of more than ``MAX_GONE`` unloaded versions."""
        gone = sorted(v.version for v in self.versions.values() if v.state is ModelState.UNAVAILABLE and v.was_unloaded)
        for version in gone[:-MAX_GONE]:
            del self.versions[version]

    def choose_serving(self) -> None:
        """Serve the highest version that is ready, or the versions that the routes name."""
        ready = self.loaded()
        self.answering = self.serving = ready[-1] if ready else None
        if self.routing is not None:
            self.routing.follow(ready)
            self.take_routes()

    def take_routes(self) -> None:
        """Serve by the routes, which have changed."""
        if self.routing is not None:
            routes = self.routing.routes
            # Aliases alone leave the version itself there, so that requests without a name take no step more.
            self.answering = self.routing.default() if routes.split or routes.shadow else self.serving


def note(versions: Iterable[VersionEntry], reason: str) -> None:
    """Change the reason of versions whose state stays as it is."""
    for version in versions:
        version.reason = reason
