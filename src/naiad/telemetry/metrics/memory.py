"""The metrics of models' memory and of models that are loaded for requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from naiad.telemetry.metrics.exposition import family


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The figures of memory to show.

    Attributes:
        held: the bytes that each model version uses, by its labels.
        budget_bytes, used_bytes: ``--model-memory-budget`` (0 for none), and the bytes that count towards it.
        evictions: the number of models unloaded for memory, and for being idle; None where neither happens.
        demand: the number of loads that requests have triggered, and of requests that wait now; None without load on
            demand.
    """

    held: tuple[tuple[Mapping[str, str], int], ...]
    budget_bytes: int = 0
    used_bytes: int = 0
    evictions: Mapping[str, int] | None = None
    demand: tuple[int, int] | None = None


def blocks(figures: MemoryFigures) -> Iterator[str]:
    """The families in the text exposition format, in parts."""
    if figures.held:
        yield from family("naiad_model_memory_bytes", "gauge", "Memory of a model version, measured", figures.held)
    if figures.budget_bytes:
        yield from _one("naiad_model_memory_budget_bytes", "gauge", "Memory that models may hold", figures.budget_bytes)
        yield from _one("naiad_model_memory_used_bytes", "gauge", "Memory that counts towards it", figures.used_bytes)
    if figures.evictions is not None:
        counts = [({"reason": reason}, figures.evictions.get(reason, 0)) for reason in ("memory", "idle")]
        yield from family("naiad_model_evictions", "counter", "Models unloaded by the server itself", counts)
    if figures.demand is not None:
        loads, waiting = figures.demand
        yield from _one("naiad_model_demand_loads", "counter", "Loads that requests have asked for", loads)
        yield from _one(
            "naiad_model_demand_waiting", "gauge", "Requests that wait for their model to be loaded", waiting
        )


def _one(name: str, kind: str, help_line: str, value: int) -> Iterator[str]:
    return family(name, kind, help_line, [({}, value)])
