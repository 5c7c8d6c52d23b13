"""The metric families that the reference does not have, read from the engine: shadows, memory, load on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from naiad.lifecycle.memory.measure import DEVICE
from naiad.telemetry.metrics import memory
from naiad.telemetry.metrics import shadow as shadows

if TYPE_CHECKING:
    from naiad.engine.engine import Engine


def own_families(engine: Engine) -> Iterator[str]:
    """Each family as text."""
    yield from shadows.blocks(engine.routes.shadows())
    yield from memory.blocks(_memory(engine))


def _memory(engine: Engine) -> memory.MemoryFigures:
    held = tuple(
        ({"model": m.name, "version": str(m.version), "device": DEVICE}, m.statistics.memory_bytes)
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
