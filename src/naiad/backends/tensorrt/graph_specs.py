"""Which runs are captured as CUDA graphs, and which graph a batch can use. Decisions only, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Shapes = tuple[tuple[int, ...], ...]
"""The full shape of each input, in the order of the plan."""

MAX_GRAPHS: Final = 64
"""The most graphs of an instance: each holds memory of the GPU."""


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One entry of ``optimization.cuda.graph_spec``.

    Attributes:
        batch_size: the rows; 0 for a model without a batch axis.
        shapes: the shape of each input, without rows; those of the configuration where it is absent.
        lower: the fewest rows that the graph may run for, 0 for exactly ``batch_size``.
    """

    batch_size: int
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lower: int = 0


@dataclass(frozen=True, slots=True)
class WantedGraph:
    """A run that is to be captured: the shapes of its inputs, and the fewest rows that it may be used for."""

    shapes: Shapes
    lower: int


def wanted_graphs(
    specs: Sequence[GraphSpec], names: Sequence[str], dims: Mapping[str, tuple[int, ...]], sizes: Iterable[int]
) -> list[WantedGraph]:
    """The runs to capture, at most ``MAX_GRAPHS``.

    Args:
        specs: those of the configuration; empty for batches of ``sizes``.
        names: of the inputs, in the order of the plan.
        dims: by input, the shape without rows; -1 where it is open.
        sizes: numbers of rows; only 0 for a model without a batch axis.
    """
    found = []
    for spec in specs or [GraphSpec(size) for size in sizes]:
        shapes = tuple(_with_rows(spec.batch_size, spec.shapes.get(name, dims[name])) for name in names)
        # A graph has one shape: what a configuration leaves open cannot be captured.
        if not any(size < 0 for shape in shapes for size in shape):
            found.append(WantedGraph(shapes, spec.lower or spec.batch_size))
    return list(dict.fromkeys(found))[:MAX_GRAPHS]


def usual_sizes(most: int, preferred: Iterable[int]) -> list[int]:
    """The numbers of rows that are captured unless a configuration says which: powers of two, the preferred sizes of
    the batcher, and the most rows.
    """
    if not most:
        return [0]
    powers = {1 << n for n in range(most.bit_length())}
    return sorted(size for size in powers | set(preferred) | {most} if size <= most)


def fitting_graph(captured: Iterable[WantedGraph], shapes: Shapes) -> WantedGraph | None:
    """The smallest graph that a batch with these shapes can use; None for none."""
    fitting = [graph for graph in captured if graph.shapes == shapes or _holds(graph, shapes)]
    return min(fitting, key=lambda graph: graph.shapes, default=None)


def _holds(graph: WantedGraph, shapes: Shapes) -> bool:
    """Whether the batch has fewer rows than the graph, enough for its lower bound, and is the same otherwise."""
    # 0 is the lower bound of a model without a batch axis.
    return graph.lower > 0 and all(
        len(own) == len(given) > 0 and own[1:] == given[1:] and graph.lower <= given[0] <= own[0]
        for own, given in zip(graph.shapes, shapes, strict=True)
    )


def _with_rows(rows: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    return (rows, *dims) if rows else dims
