"""The facade for front ends: look-ups with the protocol's errors, readiness, metadata and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from naiad.config.read import ReadConfig
from naiad.config.spec import ModelSpec, TensorSpec
from naiad.engine.request_validation import check_request
from naiad.engine.statistics import statistics_of
from naiad.engine.traffic_control import RouteControl
from naiad.errors import InvalidArgumentError, NaiadError, NotFoundError, UnavailableError, UnsupportedError
from naiad.eventloop.sliced_work import SlicedWork
from naiad.execution.model.interface import LoadedVersion, ServingModel
from naiad.execution.model_directory import CalledInput, Checked
from naiad.gpus.lost import lost_gpus
from naiad.lifecycle.manager import ModelManager
from naiad.lifecycle.memory.load_on_demand import ModelNotLoadedError, Waiting
from naiad.lifecycle.naming import NamespacedEntries, resolve
from naiad.lifecycle.state.load_errors import NoVersionError
from naiad.lifecycle.state.model_requests import Done
from naiad.lifecycle.state.model_table import ModelEntry, VersionEntry
from naiad.lifecycle.state.states import ModelState
from naiad.lifecycle.tuning.tuner import ModelTuner
from naiad.repository.local.namespaces import namespace_of, short_name
from naiad.repository.local.overrides import Overrides
from naiad.shared_memory.registry import RegionRegistry
from naiad.telemetry.logs.server_log import BATCHES, LogSettings, ServerLog
from naiad.telemetry.metrics.latencies import NO_DISTRIBUTIONS, Latencies, LatencySettings
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from naiad.telemetry.slow.recorder import SlowRequests
from naiad.telemetry.tracing.settings import read_changes
from naiad.telemetry.tracing.settings_store import Tracing
from naiad.version import __version__

SHARED_MEMORY = ("system_shared_memory", "cuda_shared_memory")
EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    *SHARED_MEMORY,
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""The served protocol extensions, in the order of the reference's list; shared memory only if it is allowed."""

_MAX_VERSION = 2**63 - 1


class WrittenConfig(NamedTuple):
    """The completed configuration message of a version, and the configuration that it was completed from.

    ``tuned`` says how the version was tuned since then; None where it is not.
    """

    version: int
    completed: Any
    read: ReadConfig
    tuned: dict[str, Any] | None = None


class ModelObserver(Protocol):
    """A cache of facts about loaded models."""

    def forget(self, model: ServingModel) -> None:
        """Drop a model that is being unloaded."""


class Engine:
    """The served models, by name. Used on the event loop only.

    Args:
        manager: owns the models.
        server_id: ``--id``.
        strict_readiness: ready only when every model is (``--strict-readiness``).
        log: the server log, whose settings can be changed.
        tracing: the trace settings.
        latencies: which distributions of latencies are kept; None for none.

    Attributes:
        budget: bounds the open requests and their bytes.
        regions: the clients' shared memory.
        leaving: the server still serves, but reports that it is not ready (``--shutdown-delay``).
        exiting: the server shuts down.
        failure: why it could not start to serve, "" if it could; with it the server is neither live nor ready.
        routes: the routes API.
        demand: loads models for requests; None when requests do not load models.
        memory: the memory of each model.
        slow: the slow requests; None where they are not recorded.
        tuner: tunes the models that have a latency objective.
    """

    def __init__(
        self,
        manager: ModelManager,
        server_id: str,
        strict_readiness: bool,
        log: ServerLog | None = None,
        tracing: Tracing | None = None,
        regions: RegionRegistry | None = None,
        latencies: LatencySettings | None = None,
        slow: SlowRequests | None = None,
        tuner: ModelTuner | None = None,
    ) -> None:
        self.slow = slow
        self.tuner = tuner or ModelTuner(manager, None, 1)
        self._latencies = latencies or NO_DISTRIBUTIONS
        self.log = log or ServerLog(LogSettings())
        self.log.when_changed.append(self._log_batches)
        self.regions = regions or RegionRegistry()
        self._manager = manager
        self._entries = manager.entries
        self._server_id = server_id
        self._strict_readiness = strict_readiness
        self._followers: WeakSet[ModelObserver] = WeakSet()
        self.exiting = False
        self.failure = ""
        self.budget = manager.budget
        self.sliced_work = SlicedWork()
        self.leaving = False
        self.routes = RouteControl(manager)
        self.demand = manager.demand
        self.memory = manager.memory
        manager.subscribe(self, self)
        self._tracing = tracing or Tracing()
        self._tracing.when_changed = self._trace_all

    def follow(self, follower: ModelObserver) -> None:
        """Notify ``follower`` of each model that is unloaded from now on. Keeps a weak reference only."""
        self._followers.add(follower)

    def on_unloading(self, model: ServingModel) -> None:
        """Have every follower forget a model that is being unloaded."""
        self.tuner.forget(model)
        for follower in list(self._followers):
            follower.forget(model)

    # Tracing

    def trace_settings(self, model: str) -> dict[str, str | list[str]]:
        """The trace settings of a model, or with "" of all models without own settings, in the protocol's form.

        Raises:
            InvalidArgumentError: there is no such model.
        """
        if model and not self.is_model_ready(model, None):
            raise InvalidArgumentError(f"Request for unknown model : {model}")
        return self._tracing.shown(model)

    def change_trace_settings(
        self, model: str, given: Mapping[str, Sequence[str] | None]
    ) -> dict[str, str | list[str]]:
        """Change the trace settings in ``given``, all or none, and return all settings; None clears one.

        Errors as ``trace_settings``, ``read_changes`` and ``Tracing.change``.
        """
        # Only for its error.
        self.trace_settings(model)
        if given:
            self._tracing.change(model, read_changes(given))
        return self._tracing.shown(model)

    def _trace_all(self) -> None:
        for model in self.loaded_models():
            model.trace_with(self._tracing.sampler(model.name))

    def on_serving(self, model: LoadedVersion) -> None:
        """Trace a version as the settings say now, measure it, and tune it. Called before its first request."""
        if self._latencies.is_on and model.statistics.latencies is None:
            spec = model.spec
            model.keep_latencies(Latencies(self._latencies, spec.buckets, spec.decoupled))
        if self.slow is not None:
            self.slow.watch.start()
            model.record_slow(self.slow)
        self.tuner.follow(model)
        model.trace_with(self._tracing.sampler(model.name))
        if self.log.settings.log_verbose_level >= BATCHES:
            model.log_batches(True)

    def _log_batches(self, settings: LogSettings) -> None:
        for model in self.loaded_models():
            model.log_batches(settings.log_verbose_level >= BATCHES)

    def watch_latencies(self) -> None:
        """Keep recent latencies of each loaded version from now on; called again for those that were loaded since."""
        for model in self.loaded_models():
            found = model.statistics.latencies
            if found is None:
                model.keep_latencies(RecentLatencies())
                model.trace_with(self._tracing.sampler(model.name))
            elif isinstance(found, Latencies):
                found.watch()

    def watch_latencies_no_more(self) -> None:
        """Keep only the latencies that the server's options ask for."""
        for model in self.loaded_models():
            if isinstance(model.statistics.latencies, RecentLatencies):
                model.keep_latencies(None)
                model.trace_with(self._tracing.sampler(model.name))

    def slow_requests(self, model: str) -> dict[str, Any]:
        """The slowest requests of the last minutes, of one model or with "" of all.

        Raises:
            UnsupportedError: they are not recorded.
            NotFoundError: there is no such model.
        """
        if self.slow is None:
            raise UnsupportedError("slow requests are not recorded: start the server with --slow-requests=100, say")
        if model and not any(model in (key, short_name(key)) for key in self._entries):
            raise NotFoundError(f"Request for unknown model: '{model}' is not found")
        return {"slow_requests": self.slow.as_json(model)}

    # Loading and unloading

    def load(self, name: str, overrides: Overrides, done: Done) -> None:
        """Load a model; ``done`` is called later, with the error of ``ModelManager.load_model`` or None."""
        self._manager.begin_load(name, overrides, done)

    def unload(self, name: str, unload_dependents: bool, done: Done) -> None:
        """Unload a model; ``done`` is called later, with the error of ``ModelManager.unload_model`` or None."""
        self._manager.begin_unload(name, unload_dependents, done)

    def load_model(self, name: str, config: str | None, files: Mapping[str, str], done: Done) -> None:
        """``load``, as models call it."""
        self.load(name, Overrides(config, files), done)

    def unload_model(self, name: str, unload_dependents: bool, done: Done) -> None:
        """``unload``, as models call it."""
        self.unload(name, unload_dependents, done)

    def wait_for_model(self, error: NaiadError, size: int, done: Done, caller: str = "") -> Waiting | None:
        """Wait for a model to be loaded, when ``error`` says that it can be; ``caller`` stays loaded meanwhile."""
        if self.demand is None or not isinstance(error, ModelNotLoadedError):
            return None
        return self.demand.wait(error.name, size, done, caller)

    def refresh_index(self, done: Done) -> None:
        """List the repositories again for ``index``; then ``done`` is called."""
        self._manager.begin_listing(done)

    # Look-ups

    def find(self, name: str, version: str | None) -> ServingModel:
        """The model for a name and a version or alias ("" or None: the highest ready version, or as routed).

        Raises:
            NotFoundError: no such model or version.
            UnavailableError: the version is not ready.
            ModelNotLoadedError: the model can be loaded for a request (``wait_for_model``).
            InvalidArgumentError: the version is neither a number nor an alias.
        """
        # The path of most requests: one look-up. Namespaces, aliases and loads on demand come after it.
        entry = self._entries.get(name)
        if entry is not None and not version and entry.answering is not None:
            return entry.answering
        try:
            entry = resolve(self._entries, name)
        except InvalidArgumentError as error:
            # No namespace has it loaded, or several do.
            raise self._or_loadable(name, error) from None
        # As above, for a name without its namespace.
        if entry is not None and not version and entry.answering is not None:
            return entry.answering
        try:
            found = self._version_of(entry, name, version).model
        except InvalidArgumentError as error:
            return self._find_alias(name, version, error)
        except (NotFoundError, UnavailableError) as error:
            # Loads on demand cost nothing but here, where a request would fail.
            if version and not self.has_alias(name, version):
                _version_number(version)
            raise self._or_loadable(name, error) from None
        if found is None:
            raise UnavailableError(f"Request for unknown model: '{name}' version {version} is not at ready state")
        return found

    def has_alias(self, name: str, version: str) -> bool:
        """Whether a model has an alias of that name, or may have one once it is loaded."""
        # No namespace has the model loaded, or several do; it may still be loadable.
        with suppress(InvalidArgumentError):
            entry = resolve(self._entries, name)
            if entry is not None and entry.routing is not None and version in entry.routing.routes.aliases:
                return True
        return bool(self._manager.loadable_key(name))

    def _find_alias(self, name: str, version: str | None, error: InvalidArgumentError) -> ServingModel:
        """The model of an alias; raises ``error`` for an unknown alias."""
        try:
            aliased = self._aliased(name, version)
        except UnavailableError as missing:
            raise self._or_loadable(name, missing) from None
        if aliased is None:
            raise error
        return aliased

    def _or_loadable(self, name: str, error: NaiadError) -> NaiadError:
        """``error``, or a ``ModelNotLoadedError`` when the model can be loaded for a request."""
        key = self._manager.loadable_key(name)
        return ModelNotLoadedError(key) if key else error

    def _aliased(self, name: str, version: str | None) -> ServingModel | None:
        """The model of an alias, None for an unknown alias; errors as ``Routing.alias`` and ``resolve``."""
        entry = resolve(self._entries, name)
        return None if entry is None or entry.routing is None else entry.routing.alias(version or "")

    def _version_named(self, name: str, version: str) -> int:
        """The number of a version or an alias; errors as ``find``."""
        try:
            return _version_number(version)
        except InvalidArgumentError:
            aliased = self._aliased(name, version)
            if aliased is None:
                raise
            return aliased.version

    def _find_version(self, name: str, version: str | None) -> VersionEntry:
        entry = resolve(self._entries, name)
        return self._version_of(entry, name, version)

    def _version_of(self, entry: ModelEntry | None, name: str, version: str | None) -> VersionEntry:
        if entry is None or not entry.versions:
            raise NotFoundError(f"Request for unknown model: '{name}' {_missing(entry, version)}")
        if not version:
            return self._serving_version(entry)
        number = _version_number(version)
        found = entry.versions.get(number)
        if found is None:
            raise NotFoundError(f"Request for unknown model: '{name}' version {number} is not found")
        if found.state is not ModelState.READY:
            raise UnavailableError(f"Request for unknown model: '{name}' version {number} is not at ready state")
        return found

    @staticmethod
    def check(spec: ModelSpec, inputs: Sequence[CalledInput], outputs: Sequence[str], request_id: str) -> Checked:
        """Check a request that a model sends to another; errors as ``check_request``."""
        fit, names = check_request(spec, inputs, outputs, request_id)
        return Checked(names, fit.rows, fit.shape_key)

    @staticmethod
    def _serving_version(entry: ModelEntry) -> VersionEntry:
        if entry.serving is None:
            raise NotFoundError(f"Request for unknown model: '{entry.name}' has no available versions")
        # No version of the split may be ready although others are.
        if entry.answering is None and entry.routing is not None:
            raise entry.routing.no_default()
        return entry.versions[(entry.answering or entry.serving).version]

    # Health

    def is_live(self) -> bool:
        """Whether the server has started to serve, does not shut down, and needs no restart."""
        return not self.exiting and not self.failure and not lost_gpus.problem

    def is_ready(self) -> bool:
        """Whether requests can be served: with strict readiness, by every model of the repositories."""
        # While leaving it is still live: it should get no new requests, and no restart.
        if self.exiting or self.leaving or self.failure or not self._manager.loaded:
            return False
        return not self._strict_readiness or not any(self._problems())

    def not_ready(self) -> list[str]:
        """Each model or version that is not ready, as ``name[:version]: reason``."""
        return list(self._problems())

    def not_loaded(self) -> list[str]:
        """Each model or version that is not loaded, as ``name[:version]: reason``.

        A model that is loaded while the server serves does not count: it is no reason to send requests elsewhere.
        """
        return [reason for entry in self._entries.values() for reason in self._missing(entry)]

    def _problems(self) -> Iterator[str]:
        # One by one: probes ask often, are content with the first, and there may be thousands of models.
        yield from filter(None, (self.failure, lost_gpus.problem))
        for entry in self._entries.values():
            yield from self._missing(entry)
            for version in entry.versions.values():
                model = version.model
                if version.state is ModelState.READY and model is not None and (problem := model.problem):
                    yield f"{model.name}:{model.version}: {problem}"

    def _missing(self, entry: ModelEntry) -> list[str]:
        missing = [
            f"{entry.name}:{v.version}: {v.reason or v.state}"
            for v in entry.versions.values()
            # An unloaded version is missing on purpose.
            if v.state is not ModelState.READY and not v.was_unloaded and not self._is_one_more(v)
        ]
        if not missing and (entry.problem or not entry.versions):
            return [f"{entry.name}: {entry.problem or 'not loaded'}"]
        return missing

    def _is_one_more(self, version: VersionEntry) -> bool:
        # A version that loads again after a failure was missing before, and still is.
        return version.state is ModelState.LOADING and not version.follows_failure and self._manager.loaded

    def is_model_ready(self, name: str, version: str | None) -> bool:
        """Whether a model, or one version of it, can serve requests.

        Raises:
            InvalidArgumentError: the version is not a number.
        """
        try:
            found = self.find(name, version)
        except (NotFoundError, UnavailableError):
            return False
        return not self.exiting and not found.problem

    def reports_model_ready(self, name: str, version: str | None) -> bool:
        """``is_model_ready`` for clients: False while the server is leaving, so that they go elsewhere."""
        return self.is_model_ready(name, version) and not self.leaving

    # Descriptions

    def server_metadata(self) -> dict[str, Any]:
        """The server metadata object of the protocol."""
        is_allowed = self.regions.is_allowed
        extensions = [name for name in EXTENSIONS if is_allowed or name not in SHARED_MEMORY]
        return {"name": self._server_id, "version": __version__, "extensions": extensions}

    def model_metadata(self, name: str, version: str | None) -> dict[str, Any]:
        """The model metadata object of the protocol; errors as ``find``."""
        model = self.find(name, version)
        spec = model.spec
        entry = resolve(self._entries, name)
        ready = [model.version] if version or entry is None else [v.version for v in entry.ready()]
        return {
            "name": name,
            "versions": [str(v) for v in ready],
            "platform": spec.platform or spec.backend,
            "inputs": [_tensor_metadata(t) for t in spec.inputs.values()],
            "outputs": [_tensor_metadata(t) for t in spec.outputs.values()],
        }

    def model_config(self, name: str, version: str | None) -> Any:
        """The completed configuration message; errors as ``find``."""
        return self._find_version(name, version and str(self._version_named(name, version))).config

    def written_config(self, name: str, version: str | None) -> WrittenConfig:
        """The configuration as completed and as written, with its places.

        Raises:
            UnavailableError: the model is loaded for the first time, and not all of its versions are there.
            NaiadError: as ``find``.
        """
        entry = resolve(self._entries, name)
        found = self._version_of(entry, name, version and str(self._version_named(name, version)))
        if entry is None or entry.read is None:
            raise UnavailableError(f"model '{name}' is loading: its configuration as written is not known yet")
        tuned = None if found.model is None else self.tuner.of(found.model)
        return WrittenConfig(found.version, found.config, entry.read, None if tuned is None else tuned.as_json())

    def index(self, ready_only: bool) -> list[dict[str, str]]:
        """The repository index: every model and version, by name, with state and reason.

        A model that nobody has tried to load has a name only.
        """
        return list(chain.from_iterable(self.index_by_model(ready_only)))

    def index_by_model(self, ready_only: bool) -> Iterator[list[dict[str, str]]]:
        """The rows of ``index`` of one model after the other. Models may come and go meanwhile."""
        for name in sorted(self._entries.keys() | self._manager.names.known):
            entry = self._entries.get(name)
            if entry is not None:
                yield self._rows_of(entry, self._index_name(name), ready_only)
            elif not ready_only:
                yield [self._index_name(name)]

    @staticmethod
    def _rows_of(entry: ModelEntry, shown: dict[str, str], ready_only: bool) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        if not entry.versions and not ready_only:
            row = _index_row(None, ModelState.UNAVAILABLE, str(entry.problem or ""))
            rows.append(shown | row)
        routes = {} if entry.routing is None else entry.routing.problems
        for found in sorted(entry.versions.values(), key=lambda v: v.version):
            if found.state is ModelState.READY or not ready_only:
                reason = "; ".join(filter(None, (found.reason, routes.get(found.version, ""))))
                rows.append(shown | _index_row(found.version, found.state, reason))
        if not ready_only:
            # Versions that only the routes name are listed, too, with the reason.
            missing = sorted(routes.keys() - entry.versions.keys())
            rows += [shown | _index_row(v, ModelState.UNAVAILABLE, routes[v]) for v in missing]
        return rows

    def _index_name(self, key: str) -> dict[str, str]:
        if not isinstance(self._entries, NamespacedEntries):
            return {"name": key}
        return {"name": short_name(key), "namespace": namespace_of(key)}

    def loaded_times(self) -> dict[str, int]:
        """The models that serve, by name, with the time at which each was loaded in seconds since 1970."""
        serving = sorted(key for key, entry in self._entries.items() if entry.answering is not None)
        return {self._index_name(key)["name"]: self._entries[key].loaded_ms // 1000 for key in serving}

    def statistics(self, name: str | None, version: str | None) -> dict[str, Any]:
        """The statistics object of the protocol, for one model, one version or all; errors as ``counted_versions``."""
        return {"model_stats": [statistics_of(model) for model in self.counted_versions(name, version)]}

    def counted_versions(self, name: str | None, version: str | None) -> list[LoadedVersion]:
        """The loaded versions that a request for statistics names.

        Raises:
            InvalidArgumentError: there is no such model or version.
        """
        if name is None:
            if version:
                _version_number(version)
            return self.loaded_models()
        if not version:
            return self._loaded_versions(name)
        number = self._version_named(name, version)
        found = [model for model in self._loaded_versions(name) if model.version == number]
        if not found:
            raise InvalidArgumentError(f"requested model version is not available for model '{name}'")
        return found

    def loaded_models(self) -> list[LoadedVersion]:
        """Every loaded version of every model, by name and version."""
        return [m for name in sorted(self._entries) for m in self._versions_of(self._entries[name])]

    def _loaded_versions(self, name: str) -> list[LoadedVersion]:
        entry = resolve(self._entries, name)
        models = self._versions_of(entry) if entry is not None else []
        if not models:
            raise InvalidArgumentError(f"requested model '{name}' is not available")
        return models

    @staticmethod
    def _versions_of(entry: ModelEntry) -> list[LoadedVersion]:
        found = [v.model for _, v in sorted(entry.versions.items()) if v.state is ModelState.READY]
        return [m for m in found if m is not None]


def _version_number(text: str) -> int:
    # int() also takes signs, spaces, underscores and other scripts, and raises beyond 4300 digits.
    # The reference parses a negative number and refuses it afterwards, with another text.
    if text.isascii() and text[:1] == "-" and text[1:].isdigit() and len(text) < 20:
        raise InvalidArgumentError(
            f"invalid model version specified '{text}' , version should be an integral value > 0"
        )
    number = int(text) if len(text) < 20 and text.isascii() and text.isdigit() else -1
    if not 0 <= number <= _MAX_VERSION:
        raise InvalidArgumentError(
            f"failed to get model version from specified version string '{text}' (details: stol), version should be an "
            "integral value > 0"
        )
    return number


def _missing(entry: ModelEntry | None, version: str | None) -> str:
    """The error text for a model without versions: known, if the version policy chose none; unknown otherwise."""
    if entry is None or not isinstance(entry.problem, NoVersionError):
        return "is not found"
    return f"version {_version_number(version)} is not found" if version else "has no available versions"


def _tensor_metadata(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.dtype.wire, "shape": tensor.shape}


def _index_row(version: int | None, state: ModelState, reason: str) -> dict[str, str]:
    row: dict[str, str] = {}
    if version is not None:
        row["version"] = str(version)
    if state:
        row["state"] = str(state)
    if reason:
        row["reason"] = reason
    return row
