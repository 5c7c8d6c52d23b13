"""The part of an ensemble that a request needs: the steps that its outputs depend on, and the tensors between them."""

from __future__ import annotations

from collections.abc import Collection

from naiad.scheduling.ensemble.graph import EnsembleStep, Graph


class Plan:
    """The part of a graph that makes certain outputs. Shared by all requests for these outputs: never changed.

    Attributes:
        graph: the whole graph.
        needed: the steps that run, in the order of the graph.
        outputs: the requested outputs, by name, with their tensors.
        given: the inputs of the requests, by name, with their tensors.
        readers: of each tensor, the steps that read it.
        waiting: of each step, how many tensors it reads.
        writers: of each tensor, how many steps may write it.
        is_wanted: of each tensor, whether it is one of ``outputs``.
        scope: of the outputs. A request gets one response for each frame of it.
        is_plain: every request gets one response, with all tensors in one scope.
    """

    __slots__ = (
        "given", "graph", "is_plain", "is_wanted", "needed", "outputs", "readers", "scope", "waiting", "writers",
    )  # fmt: skip

    def __init__(self, graph: Graph, outputs: Collection[str], given: Collection[str]) -> None:
        self.graph = graph
        self.outputs = {name: graph.outputs[name] for name in outputs}
        self.given = {name: number for name, number in graph.inputs.items() if name in given}
        needed = _needed(graph, set(self.outputs.values()))
        self.needed: tuple[EnsembleStep, ...] = tuple(graph.steps[i] for i in graph.order if i in needed)
        count = len(graph.tensors)
        readers: list[list[EnsembleStep]] = [[] for _ in range(count)]
        writers = [0] * count
        self.waiting = [0] * len(graph.steps)
        for step in self.needed:
            self.waiting[step.index] = len(step.reads)
            for tensor in step.reads:
                readers[tensor].append(step)
            for _, tensor in step.outputs:
                writers[tensor] += 1
        self.readers = tuple(tuple(found) for found in readers)
        self.writers = writers
        wanted = set(self.outputs.values())
        self.is_wanted = tuple(number in wanted for number in range(count))
        # The scopes of outputs lie inside each other (``build``), so the deepest one is the innermost.
        self.scope = max((graph.scopes[number] for number in wanted), key=lambda s: _depth(graph, s), default=0)
        self.is_plain = not any(step.is_decoupled for step in self.needed)


def _needed(graph: Graph, wanted: set[int]) -> set[int]:
    """Indices of the steps that the tensors ``wanted`` depend on."""
    needed: set[int] = set()
    wanted = set(wanted)
    # Backwards, so that all readers of a step's outputs were visited before the step.
    for index in reversed(graph.order):
        step = graph.steps[index]
        if not wanted.isdisjoint(tensor for _, tensor in step.outputs):
            needed.add(index)
            wanted |= step.reads
    return needed


def _depth(graph: Graph, scope: int) -> int:
    depth = 0
    while (scope := graph.parents[scope]) >= 0:
        depth += 1
    return depth
