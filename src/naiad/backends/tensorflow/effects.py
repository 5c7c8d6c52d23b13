"""Whether running a graph may change it: found by following its operators, functions included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Beginnings of the types of operators after which another run may see something else.
_WRITERS: Final = (
    *("Assign", "Barrier", "CountUpTo", "EagerPyFunc", "LookupTableImport", "LookupTableInsert", "LookupTableRemove"),
    *("Multinomial", "Print", "PyFunc", "Queue", "Random", "ResourceApply", "ResourceCountUpTo", "ResourceScatter"),
    *("ScatterAdd", "ScatterDiv", "ScatterMax", "ScatterMin", "ScatterMul", "ScatterNdAdd", "ScatterNdSub"),
    *("ScatterNdUpdate", "ScatterSub", "ScatterUpdate", "Stack", "Stage", "Stateful", "Write"),
)
VARIABLES: Final = frozenset({"VarHandleOp", "Variable", "VariableV2"})
"""Types of operators that stand for a variable."""
# "Stateful" is the beginning of random generators, and of these calls of functions.
_CALLS: Final = frozenset({"StatefulPartitionedCall"})


def writes_state(graph: Any, places: Iterable[str]) -> bool:
    """Whether computing the tensors at ``places`` may write to variables, tables, queues or random generators.

    Args:
        graph: a ``GraphDef``.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    called: set[str] = set()
    waiting = list(_reached(nodes, places))
    while waiting:
        node = waiting.pop()
        if node.op.startswith(_WRITERS) and node.op not in _CALLS:
            return True
        for name in _functions_of(node):
            if name in functions and name not in called:
                called.add(name)
                waiting.extend(functions[name].node_def)
    return False


def unset_variables(graph: Any, places: Iterable[str]) -> list[str]:
    """The variables that computing the tensors at ``places`` reads, where nothing on the way gives any of them a value.

    Args:
        graph: a ``GraphDef``.
    """
    reached = list(_reached({node.name: node for node in graph.node}, places))
    if any(node.op.startswith("Assign") for node in reached):
        return []
    return [node.name for node in reached if node.op in VARIABLES]


def _reached(nodes: Mapping[str, Any], places: Iterable[str]) -> Iterator[Any]:
    """The nodes that the tensors at ``places`` depend on."""
    seen: set[str] = set()
    waiting = [_node_name(place) for place in places]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        yield nodes[name]
        waiting.extend(_node_name(source) for source in nodes[name].input)


def _node_name(source: str) -> str:
    """The node of an input like ``x``, ``x:1`` or ``^x``."""
    return source.removeprefix("^").partition(":")[0]


def _functions_of(node: Any) -> Iterator[str]:
    """The functions that a node calls: by attributes, or by being of a function's own type."""
    yield node.op
    for value in node.attr.values():
        if value.func.name:
            yield value.func.name
        for function in value.list.func:
            yield function.name
