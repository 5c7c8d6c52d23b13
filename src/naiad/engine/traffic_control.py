"""The routes API: each call shows or changes the routes of a model, and returns the routes afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from naiad.config.routes import Routes, changed_by, version_of
from naiad.errors import InvalidArgumentError, NotFoundError
from naiad.lifecycle.naming import resolve
from naiad.telemetry.metrics.shadow import ShadowSeries

if TYPE_CHECKING:
    from naiad.lifecycle.manager import ModelManager
    from naiad.lifecycle.state.model_table import ModelEntry, ModelRoutes


class RouteControl:
    """Shows and changes the routes of all models. Used on the event loop only."""

    def __init__(self, manager: ModelManager) -> None:
        self._manager = manager

    def show(self, name: str) -> dict[str, Any]:
        """The routes of a model, as JSON values.

        Raises:
            NotFoundError: there is no such model.
            InvalidArgumentError: several namespaces have the name, or none.
        """
        return self._routing(self._entry(name)).as_json()

    def change(self, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Apply ``change`` (``changed_by``) to the routes of a model, and show them.

        Raises:
            NotFoundError: there is no such model.
            InvalidArgumentError: the change is invalid, or names a version that is not ready; nothing has changed.
        """
        return self._take(name, lambda routes: changed_by(routes, change))

    def promote(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Give a version all requests that name no version, and the alias that ``options`` name, in one step.

        ``options`` may have ``version``, by default that of the shadow, and ``alias``. A promoted shadow stops being a
        shadow. Errors as ``change``.
        """
        for key in options:
            if key not in ("version", "alias"):
                raise InvalidArgumentError(f"unknown field '{key}', expected 'version' and 'alias'")
        return self._take(name, lambda routes: _promoted(name, routes, options))

    def roll_back(self, name: str) -> dict[str, Any]:
        """Restore the routes before the last change. Errors as ``change``, also when there was no change."""
        entry = self._entry(name)
        routing = self._routing(entry)
        routing.roll_back(_states(entry))
        # The entry remembers which version serves requests without a version.
        entry.take_routes()
        return routing.as_json()

    def shadows(self) -> list[ShadowSeries]:
        """The counters of every shadow, by the names of the models."""
        found = [
            (name, entry.routing.shadow_statistics)
            for name, entry in sorted(self._manager.entries.items())
            if entry.routing is not None
        ]
        return [ShadowSeries(name, *shadow) for name, shadow in found if shadow is not None]

    def _take(self, name: str, change: Callable[[Routes], Routes]) -> dict[str, Any]:
        entry = self._entry(name)
        routing = self._routing(entry)
        routing.change(change(routing.routes), _states(entry))
        entry.take_routes()
        return routing.as_json()

    def _entry(self, name: str) -> ModelEntry:
        entry = resolve(self._manager.entries, name)
        if entry is None or not entry.versions:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return entry

    def _routing(self, entry: ModelEntry) -> ModelRoutes:
        return self._manager.versions.routing(entry)


def _promoted(name: str, routes: Routes, options: Mapping[str, Any]) -> Routes:
    if "version" in options:
        version = version_of(options["version"], "'version'")
    elif routes.shadow is not None:
        version = routes.shadow.version
    else:
        raise InvalidArgumentError(f"model '{name}' has no shadow to promote: name the 'version'")
    alias = options.get("alias")
    change: dict[str, Any] = {"split": {str(version): 1}}
    # A version cannot be compared with itself.
    if routes.shadow is not None and routes.shadow.version == version:
        change["shadow"] = None
    if alias is not None:
        if not isinstance(alias, str):
            raise InvalidArgumentError("'alias' must be the name of an alias")
        change["aliases"] = {alias: version}
    return changed_by(routes, change)


def _states(entry: ModelEntry) -> dict[int, str]:
    return {v.version: f"{v.state}: {v.reason}" if v.reason else str(v.state) for v in entry.versions.values()}
