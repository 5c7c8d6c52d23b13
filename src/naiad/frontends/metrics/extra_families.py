"""The metric families that the reference does not have, read from the engine and the listeners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from naiad.lifecycle.memory.measure import DEVICE
from naiad.lifecycle.tuning.tuned_model import as_settings
from naiad.telemetry.metrics import memory
from naiad.telemetry.metrics import shadow as shadows
from naiad.telemetry.metrics.exposition import family
from naiad.telemetry.metrics.load import LoadFigures, busy_ns
from naiad.tensor.device_tensor import transfers

if TYPE_CHECKING:
    from naiad.engine.engine import Engine
    from naiad.execution.model.interface import LoadedVersion

INSTANCE_STATES: Final = ("idle", "busy", "down")


class Port(Protocol):
    """A listener, as the metrics page shows it."""

    @property
    def connection_count(self) -> int:
        """The number of open connections."""


def own_families(
    engine: Engine, ports: Mapping[str, Port], load: LoadFigures, front_requests: Mapping[str, int]
) -> Iterator[str]:
    """Each family as text, in parts."""
    yield from shadows.blocks(engine.routes.shadows())
    yield from memory.blocks(_memory(engine))
    yield from _load(engine, load)
    yield from _tuned(engine)
    if engine.slow is not None:
        watch = engine.slow.watch
        late = "Seconds that the event loop was late, in turns that were more than 5 ms late"
        yield from family("naiad_loop_late_seconds", "counter", late, [({}, watch.late_ns / 1e9)])
        yield from family("naiad_loop_latest_seconds", "gauge", "The longest of them", [({}, watch.latest_ns / 1e9)])
    if ports:
        rows = [({"protocol": protocol}, port.connection_count) for protocol, port in ports.items()]
        yield from family("naiad_connections", "gauge", "Open connections", rows)
    handled = transfers.counts()
    if any(handled.values()):
        help = "Tensors between steps of ensembles on a device: left there, or copied to the processor's memory"
        yield from family("naiad_device_tensors", "counter", help, [({"handling": h}, n) for h, n in handled.items()])
    if front_requests:
        counts = [({"handling": handling}, count) for handling, count in front_requests.items()]
        help = "Requests that front-end processes ran, read for the engine, or handed over as they were"
        yield from family("naiad_frontend_requests", "counter", help, counts)
        replicas = [(_labels(m), m.replicas) for m in engine.loaded_models()]
        if replicas:
            yield from family("naiad_replicas", "gauge", "Front-end processes that run a model themselves", replicas)


def _labels(model: LoadedVersion) -> dict[str, str]:
    """With the namespace, if there are any: another repository may have a model of the same name."""
    namespace = {"namespace": model.namespace} if model.namespace else {}
    return {"model": model.name, **namespace, "version": str(model.version)}


def _load(engine: Engine, load: LoadFigures) -> Iterator[str]:
    found: list[tuple[LoadedVersion, dict[str, str], dict[str, int]]] = []
    for model in engine.loaded_models():
        if states := model.instance_states:
            found.append((model, _labels(model), states))
        # A step of its own, since a thousand of them take milliseconds.
        yield ""
    if not found:
        return
    counts = (
        ({**labels, "state": state}, states.get(state, 0)) for _, labels, states in found for state in INSTANCE_STATES
    )
    yield from family("naiad_instances", "gauge", "Instances of a model, by what they do now", counts)
    busy = ((labels, busy_ns(model.statistics) / 1e9) for model, labels, _ in found)
    yield from family("naiad_instance_busy_seconds", "counter", "Seconds that instances ran, all together", busy)
    loads = ((labels, load.read(model.statistics, sum(states.values()))) for model, labels, states in found)
    help = "Share of its instances' time that a model uses, and batches that wait for an instance; 1 is all it can do"
    yield from family("naiad_load", "gauge", help, loads)


def _tuned(engine: Engine) -> Iterator[str]:
    found = [(_labels(t.model), t) for t in engine.tuner.models.values()]
    if not found:
        return
    settings = [
        ({**labels, "setting": name}, value) for labels, t in found for name, value in as_settings(t.applied).items()
    ]
    yield from family(
        "naiad_tuned_setting", "gauge", "What self-tuning has set, in the configuration's units", settings
    )
    changes = [({**labels, "cause": cause}, count) for labels, t in found for cause, count in sorted(t.changes.items())]
    if changes:
        yield from family("naiad_tuning_decisions", "counter", "Decisions of self-tuning, by cause", changes)
    limits = [(labels, t.objective.limit_ns / 1e9) for labels, t in found]
    yield from family("naiad_slo_limit_seconds", "gauge", "The latency limit of the objective", limits)
    requests = [(labels, t.requests) for labels, t in found]
    yield from family(
        "naiad_slo_requests", "counter", "Successful requests of models with a latency objective", requests
    )
    late = [(labels, t.late) for labels, t in found]
    yield from family("naiad_slo_late_requests", "counter", "Those above the latency limit", late)


def _memory(engine: Engine) -> memory.MemoryFigures:
    held = tuple(
        ({**_labels(m), "device": DEVICE}, m.statistics.memory_bytes)
        for m in engine.loaded_models()
        if m.statistics.memory_bytes
    )
    found, demand = engine.memory, engine.demand
    return memory.MemoryFigures(
        held,
        found.budget_bytes,
        found.used_bytes() if found.budget_bytes else 0,
        found.evictions if found.evicts else None,
        None if demand is None else (demand.loads, demand.waiting),
    )
