"""What of an ensemble a request needs: the steps that its outputs depend on, and how each tensor leads to the next."""

from __future__ import annotations

from collections.abc import Collection

from naiad.scheduling.ensemble.graph import EnsembleStep, Graph


class Plan:
    """The part of a graph that gives certain outputs. Shared by all requests for these, and never changed.

    Attributes:
        graph: all of it.
        needed: the steps that run, by their index, in the order of the graph.
        outputs: those that are asked for, by name, with their tensors.
        given: the inputs that requests bring, by name, with their tensors.
        readers: of each tensor, the steps that wait for it.
        waiting: of each step, for how many tensors it waits; what runs at once waits for none.
        writers: of each tensor, how many steps may write it.
        is_wanted: of each tensor, whether it is one of ``outputs``.
        scope: that of the outputs: one response for each time that it is entered.
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
        # They lie inside each other, so the innermost is that with the longest way out.
        self.scope = max((graph.scopes[number] for number in wanted), key=lambda s: _depth(graph, s), default=0)
        self.is_plain = not any(step.is_decoupled for step in self.needed)


def _needed(graph: Graph, wanted: set[int]) -> set[int]:
    """The indices of all steps that the tensors ``wanted`` depend on."""
    needed: set[int] = set()
    wanted = set(wanted)
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
