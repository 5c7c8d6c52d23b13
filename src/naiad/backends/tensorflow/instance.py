"""Instances that run a TensorFlow session: arrays to a prepared call of the graph, and back."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.tensorflow.session import LoadedGraph, failure_text
from naiad.errors import BackendError, InvalidArgumentError
from naiad.processes.freed_memory import return_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Calls that leave optional inputs out, by which ones they have: bounded, since callers choose.
_MAX_PARTIAL: Final = 16


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """How a model is called; the same for all its instances.

    Attributes:
        inputs: the place in the graph of each input that is given to it.
        outputs: the same of each output.
        scalars: tensors without dims in the graph that the configuration declares with ``dims: [ 1 ]``.
        bare: outputs without dims in the graph and in the configuration's ``reshape``, which TensorFlow returns as no
            arrays.
        fixed: shapes that the graph fixes further than the configuration does, -1 for an axis that is open in both.
        in_caller: operators run in the thread that calls.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    scalars: frozenset[str]
    bare: frozenset[str]
    fixed: Mapping[str, tuple[int, ...]]
    in_caller: bool

    @property
    def is_plain(self) -> bool:
        """Whether arrays go in and come out as they are."""
        return not (self.scalars or self.bare or self.fixed)


class GraphCalls:
    """The prepared calls of one session, used by the threads of all instances that share it."""

    def __init__(self, graph: LoadedGraph, plan: FeedPlan) -> None:
        self.graph = graph
        self.plan = plan
        self._lock = threading.Lock()
        self._partial: dict[frozenset[str], Callable[..., list[Any]]] = {}
        self.users = 0
        self.whole = self._prepare(tuple(plan.inputs))

    def partial(self, names: frozenset[str]) -> Callable[..., list[Any]]:
        """The call with these inputs only, in the order of the plan."""
        with self._lock:
            call = self._partial.get(names)
            if call is None:
                if len(self._partial) >= _MAX_PARTIAL:
                    self._partial.clear()
                call = self._partial[names] = self._prepare([name for name in self.plan.inputs if name in names])
            return call

    def close(self) -> None:
        """Release the calls and the session."""
        self._partial.clear()
        del self.whole
        self.graph.close()
        del self.graph
        return_freed_memory()

    def _prepare(self, names: Sequence[str]) -> Callable[..., list[Any]]:
        feeds = [self.plan.inputs[name] for name in names]
        return self.graph.callable(feeds, list(self.plan.outputs.values()), self.plan.in_caller)


class TensorFlowInstance(Instance):
    """Tensors that go in as they are and come out as arrays that own their memory."""

    def __init__(self, calls: GraphCalls, release: Callable[[GraphCalls], None]) -> None:
        plan = calls.plan
        self._calls = calls
        self._whole = calls.whole
        self._names = tuple(plan.inputs)
        self._outputs = tuple(plan.outputs)
        self._release = release

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """All outputs; ``BackendError`` with TensorFlow's text when the run fails."""
        try:
            if len(inputs) == len(self._names):
                found = self._whole(*map(inputs.__getitem__, self._names))
            else:
                found = self._run_partial(inputs)
        except Exception as error:
            raise BackendError(f"tensorflow: {failure_text(error)}") from error
        return dict(zip(self._outputs, found, strict=True))

    def close(self) -> None:
        """Release the session, which is closed with its last instance."""
        calls = self._calls
        # The call refers to the session.
        del self._calls, self._whole
        self._release(calls)

    def _run_partial(self, inputs: Arrays) -> list[Any]:
        """Run with optional inputs left out."""
        call = self._calls.partial(frozenset(inputs))
        return call(*(inputs[name] for name in self._names if name in inputs))


class ReshapingInstance(Instance):
    """Also scalars, which a configuration calls ``dims: [ 1 ]``, and axes that only the graph fixes."""

    def __init__(self, plain: TensorFlowInstance, plan: FeedPlan) -> None:
        self._plain = plain
        self._scalars = plan.scalars
        self._bare = plan.bare
        self._fixed = plan.fixed

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """As for plain tensors; ``InvalidArgumentError`` for a shape that the model does not take."""
        for name, shape in self._fixed.items():
            if name in inputs:
                _check_shape(name, inputs[name].shape, shape)
        adapted = {n: array.reshape(()) if n in self._scalars else array for n, array in inputs.items()}
        found = self._plain.execute(adapted, outputs)
        return {name: self._from_model(name, value) for name, value in found.items()}

    def close(self) -> None:
        """Release the session."""
        self._plain.close()

    def _from_model(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        if name not in self._scalars and name not in self._bare:
            array: np.ndarray[Any, Any] = value
            return array
        # A text of any length is one element.
        whole = np.array(value, np.object_ if isinstance(value, bytes) else None)
        return whole.reshape(1) if name in self._scalars else whole


def _check_shape(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """The framework itself does not compare what a prepared call is given with the shapes of the graph."""
    if len(found) == len(expected) and all(e in (-1, f) for f, e in zip(found, expected, strict=True)):
        return
    raise InvalidArgumentError(
        f"tensorflow: input '{name}' has the shape {_text(found)}, and the model takes {_text(expected)}"
    )


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
