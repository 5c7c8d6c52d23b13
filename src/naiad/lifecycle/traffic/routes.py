"""The routes of one model, their history, and the responder of each route.

Routes belong to the name of the model: they outlast its versions, and a reload. Used on the event loop only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from naiad.clock import Clock, SystemClock
from naiad.config.freeze import parameters
from naiad.config.routes import NO_ROUTES, PREFIX, Routes, routes_of_parameters
from naiad.errors import InvalidArgumentError, UnavailableError
from naiad.lifecycle.traffic.routed_model import RoutedModel
from naiad.lifecycle.traffic.shadow import ShadowTraffic
from naiad.scheduling.traffic.sticky import StickyVersions
from naiad.telemetry.metrics.shadow import ShadowStatistics

if TYPE_CHECKING:
    from naiad.execution.model.interface import LoadedVersion

MAX_HISTORY: Final = 16
"""How many earlier routes of a model can be restored."""
DEFAULT: Final = ""
"""The route of requests that name no version."""


class Routing:
    """The routes of one model.

    Args:
        name: of the model.
        forget: called with each ``RoutedModel`` that is replaced.
        changed: called after the routes were set.

    Attributes:
        routes: those in force.
        revision: counts their changes.
        problems: why a version that is named takes no requests, by number.
    """

    def __init__(
        self,
        name: str,
        forget: Callable[[RoutedModel], None],
        clock: Clock | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.routes: Routes = NO_ROUTES
        self.revision = 0
        self.problems: dict[int, str] = {}
        self._name = name
        self._forget = forget
        self._changed = changed
        self._clock = clock or SystemClock()
        self._configured: Routes = NO_ROUTES
        self._history: deque[Routes] = deque(maxlen=MAX_HISTORY)
        self._found: dict[str, RoutedModel] = {}
        self._sequences: dict[str, StickyVersions] = {}
        self._statistics = ShadowStatistics()
        self._ready: dict[int, LoadedVersion] = {}

    # Changes

    def configure(self, routes: Routes) -> None:
        """Take the routes of a configuration, unless the load before brought the same.

        So routes that were set over the API stay until the configuration changes.
        """
        if routes != self._configured:
            self._configured = routes
            self._set(routes)

    def change(self, routes: Routes, known: Mapping[int, str]) -> None:
        """Take other routes; ``roll_back`` restores the present ones.

        Args:
            routes: the new ones.
            known: the state of each version of the model, for the text of the error.

        Raises:
            InvalidArgumentError: a version that they name cannot take requests.
        """
        self._check(routes, known)
        if routes != self.routes:
            self._history.append(self.routes)
            self._set(routes)

    def roll_back(self, known: Mapping[int, str]) -> None:
        """Restore the routes before the last change, once for each change; arguments and errors as ``change``.

        Raises:
            InvalidArgumentError: nothing was changed; or as ``change``.
        """
        if not self._history:
            raise InvalidArgumentError(
                f"the routes of model '{self._name}' were not changed: there is nothing to go back to"
            )
        # Before ``pop``: a refusal leaves the history as it is.
        self._check(self._history[-1], known)
        # The present routes do not enter the history: the next call goes one change further back, not forth again.
        self._set(self._history.pop())

    def _set(self, routes: Routes) -> None:
        # The counters belong to one shadow and its settings.
        if routes.shadow != self.routes.shadow:
            self._statistics = ShadowStatistics()
        self.routes = routes
        self.revision += 1
        self._resolve()
        self._changed()

    def _check(self, routes: Routes, known: Mapping[int, str]) -> None:
        ready = ", ".join(str(version) for version in sorted(self._ready)) or "none"
        for version, by in routes.named():
            if version not in self._ready:
                state = known.get(version, "there is no such version")
                raise InvalidArgumentError(
                    f"{by} of model '{self._name}' names version {version}, which is not loaded ({state}); loaded: "
                    f"{ready}"
                )
        found = [self._ready[version] for version, _ in routes.split or self._highest()]
        if routes.shadow is not None and found:
            found.append(self._check_shadow(self._ready[routes.shadow.version], found))
        for other in found[1:]:
            if differs := _difference(found[0], other):
                raise InvalidArgumentError(f"requests of model '{self._name}' cannot be shared: {differs}")

    def _check_shadow(self, shadow: LoadedVersion, shared: list[LoadedVersion]) -> LoadedVersion:
        if shared == [shadow]:
            raise InvalidArgumentError(
                f"version {shadow.version} of model '{self._name}' gets all requests: it cannot be its own shadow"
            )
        if shadow.spec.decoupled:
            raise InvalidArgumentError(
                f"model '{self._name}' is decoupled: its answers cannot be compared with those of a shadow"
            )
        return shadow

    def _highest(self) -> tuple[tuple[int, int], ...]:
        """The split of a model that names none: everything to its highest version."""
        return tuple((version, 1) for version in sorted(self._ready)[-1:])

    # Responders

    def follow(self, ready: Iterable[LoadedVersion]) -> None:
        """Route to these versions, ascending, from now on."""
        self._ready = {model.version: model for model in ready}
        self._resolve()

    def default(self) -> RoutedModel | None:
        """The responder to requests that name no version; None when no version of the split serves."""
        return self._found.get(DEFAULT)

    def alias(self, name: str) -> RoutedModel | None:
        """The responder to an alias; None when there is no such alias.

        Raises:
            UnavailableError: its version does not serve.
        """
        found = self._found.get(name) if name else None
        if found is None and name in self.routes.aliases:
            raise UnavailableError(
                f"alias '{name}' of model '{self._name}' names version {self.routes.aliases[name]}, which is not at "
                "ready state"
            )
        return found

    def no_default(self) -> UnavailableError:
        """The error for requests while ``default`` is None."""
        versions = ", ".join(str(version) for version, _ in self.routes.split)
        return UnavailableError(
            f"no version of the split of model '{self._name}' is at ready state: {versions or 'none'}"
        )

    @property
    def shadow_statistics(self) -> tuple[int, ShadowStatistics] | None:
        """The version that is the shadow, and its counters; None without a shadow."""
        shadow = self.routes.shadow
        return None if shadow is None else (shadow.version, self._statistics)

    def as_json(self) -> dict[str, Any]:
        """The routes as the API shows them."""
        default, shadow = self.default(), self.shadow_statistics
        return {
            "model": self._name,
            "revision": self.revision,
            **self.routes.as_json(),
            "serving": {} if default is None else {str(v): weight for v, weight in default.shares.items()},
            "problems": [{"version": str(v), "reason": reason} for v, reason in sorted(self.problems.items())],
            "sequences": sum(len(sequences) for sequences in self._sequences.values()),
            "shadow_statistics": None if shadow is None else shadow[1].as_json(),
            "history": [routes.as_json() for routes in reversed(self._history)],
        }

    def close(self) -> None:
        """Drop the routes of a model that is forgotten."""
        self.routes = NO_ROUTES
        self.follow(())

    def _resolve(self) -> None:
        before = list(self._found.values())
        self.problems = {v: f"{by} names it, it is not loaded" for v, by in self.routes.named() if v not in self._ready}
        self._found = {}
        if self.routes.split or self.routes.shadow:
            self._resolve_default()
        for alias, version in self.routes.aliases.items():
            if model := self._ready.get(version):
                self._found[alias] = self._routed(alias, [(model, 1)])
        # Sequences outlast a change of the routes, since their state is with a version. Only a removed alias has none
        # left.
        for name in self._sequences.keys() - ({DEFAULT} | self.routes.aliases.keys()):
            del self._sequences[name]
        for gone in before:
            # Observers first: those that expect requests keep its versions until these have come.
            self._forget(gone)
            gone.close()

    def _resolve_default(self) -> None:
        split = self.routes.split or self._highest()
        shares = [(self._ready[version], weight) for version, weight in split if version in self._ready]
        # Checked again: a version may have been loaded with another signature since the routes were set.
        for model, _ in shares[1:]:
            if differs := _difference(shares[0][0], model):
                self.problems[model.version] = f"left out of the split: {differs}"
        shares = [share for share in shares if share[0].version not in self.problems]
        if shares:
            self._found[DEFAULT] = self._routed(DEFAULT, shares, self._shadow_of(shares[0][0], len(shares) == 1))

    def _shadow_of(self, first: LoadedVersion, is_alone: bool) -> ShadowTraffic | None:
        settings = self.routes.shadow
        model = None if settings is None else self._ready.get(settings.version)
        if settings is None or model is None:
            return None
        if is_alone and model is first:
            differs = "it gets all requests itself"
        elif first.spec.decoupled:
            differs = "decoupled models have no shadow"
        else:
            differs = _difference(first, model)
        if differs:
            self.problems[model.version] = f"no shadow: {differs}"
            return None
        return ShadowTraffic(settings, model, self._statistics)

    def _routed(
        self, name: str, shares: list[tuple[LoadedVersion, int]], shadow: ShadowTraffic | None = None
    ) -> RoutedModel:
        first = shares[0][0]
        # Those without a share too: a sequence stays with a version that has lost its share.
        versions = {v: model for v, model in self._ready.items() if not _difference(first, model)}
        sequences = self._sequences.get(name)
        if sequences is None:
            sequences = self._sequences[name] = StickyVersions(self._clock)
        return RoutedModel(shares, versions, sequences, shadow)


def configured_routes(config: Any) -> Routes:
    """The routes in a configuration message; none where they are wrong, which fails the load of a version."""
    values = {key: text for key, text in parameters(config).items() if key.startswith(PREFIX)}
    try:
        return routes_of_parameters(values) if values else NO_ROUTES
    except InvalidArgumentError:
        return NO_ROUTES


def _difference(one: LoadedVersion, other: LoadedVersion) -> str:
    """Why two versions cannot take the same requests, "" if they can."""
    a, b = one.spec, other.spec
    parts = {
        "inputs": (a.inputs, b.inputs),
        "outputs": (a.outputs, b.outputs),
        "max_batch_size": (a.max_batch_size, b.max_batch_size),
        "decoupled": (a.decoupled, b.decoupled),
    }
    found = [name for name, (mine, its) in parts.items() if mine != its]
    return f"version {other.version}: its {', '.join(found)} are not those of version {one.version}" if found else ""
