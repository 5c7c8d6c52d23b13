"""The progress of one request in its ensemble: which steps may run now, and which responses are complete.

Pure decisions: of the values of tensors only the truth of a condition counts. A tensor is *settled* once it has a value
or never will have one. A step may run when all tensors that it reads are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from naiad.scheduling.ensemble.graph import EnsembleStep
from naiad.scheduling.ensemble.plan import Plan


class Absent(Enum):
    """Why a settled tensor has no value."""

    NOT_GIVEN = "the request does not have it"
    """An optional input of the ensemble. The steps that read it run without it."""
    SKIPPED = "no step that writes it has run"
    """The condition of each such step was not met, or the step reads a tensor that was skipped itself."""
    MISSING = "the model of its step did not give it"


NOT_GIVEN: Final = Absent.NOT_GIVEN
SKIPPED: Final = Absent.SKIPPED
MISSING: Final = Absent.MISSING


class Frame:
    """One run of a scope: for a request, or for one response of a decoupled step.

    Attributes:
        values: of each tensor, None before it is settled.
        left: outputs of the ensemble that are not settled; -1 once they were taken.
        size: the bytes that steps wrote in it.
        is_over: the decoupled step in it sends no more responses.
    """

    __slots__ = ("children", "is_over", "left", "scope", "size", "values", "waiting", "writers")

    def __init__(self, scope: int, values: list[Any], waiting: list[int], writers: list[int], left: int) -> None:
        self.scope = scope
        self.values = values
        self.waiting = waiting
        self.writers = writers
        self.left = left
        self.size = 0
        self.is_over = False
        self.children: deque[Frame] | None = None

    def inside(self, scope: int) -> Frame:
        """Add a frame for ``scope`` within this one. It begins with all tensors that are settled here."""
        frame = Frame(scope, self.values.copy(), self.waiting.copy(), self.writers.copy(), self.left)
        if self.children is None:
            self.children = deque()
        self.children.append(frame)
        return frame


class Task(NamedTuple):
    """A step that may run in a frame."""

    frame: Frame
    step: EnsembleStep


class EnsembleProgress:
    """The progress of one request through a ``Plan``.

    ``begin``, ``wrote`` and ``responded`` return the steps that may run now, each step once. The caller reports on each
    of them: ``wrote`` for a model with one response; ``responded`` any number of times and then ``ended`` for a
    decoupled model.

    Args:
        plan: the steps that the request needs.
        is_true: the truth of a tensor that is a condition. Its errors go to the caller of these methods.

    Attributes:
        open: steps that were returned and have not ended.
        frames: how many responses of decoupled steps are held.
        size: the bytes that steps wrote and that are held.
        is_stuck: a decoupled step cannot run because a tensor that it reads is missing.
    """

    __slots__ = ("_is_true", "_plan", "_ready", "_root", "_settled", "frames", "is_stuck", "open", "size")

    def __init__(self, plan: Plan, is_true: Callable[[Any], bool]) -> None:
        self._plan = plan
        self._is_true = is_true
        values: list[Any] = [None] * len(plan.readers)
        self._root = Frame(0, values, plan.waiting.copy(), plan.writers.copy(), len(plan.outputs))
        self._settled: list[tuple[Frame, int]] = []
        self._ready: list[Task] = []
        self.open = 0
        self.frames = 0
        self.size = 0
        self.is_stuck = False

    def begin(self, inputs: Mapping[str, Any]) -> list[Task]:
        """Settle the inputs of the request."""
        root = self._root
        for name, number in self._plan.graph.inputs.items():
            # Not by ``_write``, because no step writes an input.
            root.values[number] = inputs.get(name, NOT_GIVEN)
            self._settled.append((root, number))
        return self._advance()

    def wrote(self, task: Task, outputs: Mapping[str, Any], size: int = 0) -> list[Task]:
        """Store the response of a step: ``outputs`` by their names in the model, of ``size`` bytes together."""
        self.open -= 1
        task.frame.size += size
        self.size += size
        for name, number in task.step.outputs:
            self._write(task.frame, number, outputs.get(name, MISSING))
        return self._advance()

    def responded(self, task: Task, outputs: Mapping[str, Any], size: int = 0) -> list[Task]:
        """Store one response of a decoupled step; arguments as for ``wrote``."""
        frame = task.frame.inside(task.step.gives)
        frame.size = size
        self.size += size
        self.frames += 1
        for name, number in task.step.outputs:
            self._write(frame, number, outputs.get(name, MISSING))
        return self._advance()

    def ended(self, task: Task) -> None:
        """Note that a decoupled step sends no more responses."""
        self.open -= 1
        task.frame.is_over = True

    def responses(self) -> list[dict[str, Any]]:
        """Take the next complete responses, in order: values by the names of the outputs; a value may be ``Absent``."""
        root = self._root
        if self._plan.scope:
            found: list[dict[str, Any]] = []
            self._collect(root, found)
            return found
        if root.left != 0:
            return []
        root.left = -1
        return [self._outputs(root)]

    # Tensors

    def _write(self, frame: Frame, tensor: int, value: Any) -> None:
        """Settle a tensor, unless another step may still write it."""
        # Another step that may write it was first.
        if frame.values[tensor] is not None:
            return
        frame.writers[tensor] -= 1
        if value is SKIPPED and frame.writers[tensor] > 0:
            # The step with the opposite condition may write it.
            return
        frame.values[tensor] = value
        self._settled.append((frame, tensor))

    def _advance(self) -> list[Task]:
        """Find the steps that may run, from the tensors that were settled. Not by recursion: graphs may be long."""
        plan, settled = self._plan, self._settled
        readers, is_wanted = plan.readers, plan.is_wanted
        while settled:
            frame, tensor = settled.pop()
            if is_wanted[tensor]:
                frame.left -= 1
            waiting = frame.waiting
            for step in readers[tensor]:
                waiting[step.index] -= 1
                # Settled tensors are copied into inner frames, too, but a step runs in its own scope only.
                if not waiting[step.index] and step.scope == frame.scope:
                    self._decide(frame, step)
            # Inner frames were copied before this tensor was settled.
            for child in frame.children or ():
                child.values[tensor] = frame.values[tensor]
                settled.append((child, tensor))
        ready, self._ready = self._ready, []
        return ready

    # Steps

    def _decide(self, frame: Frame, step: EnsembleStep) -> None:
        """Run a step whose tensors are settled, or skip it."""
        why = self._obstacle(frame, step)
        if why is None:
            self.open += 1
            self._ready.append(Task(frame, step))
        elif step.gives != step.scope:
            # No response will come, so no frame will ever be made for the steps that depend on it.
            frame.is_over = True
            # A step that is skipped by a condition is no failure.
            self.is_stuck = self.is_stuck or why is MISSING
        else:
            for _, number in step.outputs:
                self._write(frame, number, why)

    def _obstacle(self, frame: Frame, step: EnsembleStep) -> Absent | None:
        values = frame.values
        # Conditions before inputs: a step that is not to run needs no inputs.
        for tensor, wanted in step.conditions:
            value = values[tensor]
            if value is MISSING:
                return Absent.MISSING
            # A tensor without a value is not true.
            if (value.__class__ is not Absent and self._is_true(value)) is not wanted:
                return Absent.SKIPPED
        for _, tensor, is_optional in step.inputs:
            value = values[tensor]
            if value.__class__ is Absent and value is not NOT_GIVEN and not is_optional:
                return Absent.SKIPPED if value is SKIPPED else Absent.MISSING
        return None

    # Responses

    def _outputs(self, frame: Frame) -> dict[str, Any]:
        return {name: frame.values[number] for name, number in self._plan.outputs.items()}

    def _collect(self, frame: Frame, found: list[dict[str, Any]]) -> bool:
        """Take the complete responses out of a frame, in order; whether none will follow."""
        if frame.scope == self._plan.scope:
            if frame.left:
                return False
            found.append(self._outputs(frame))
            return True
        children = frame.children
        # Only from the front: a complete response waits for the responses before it.
        while children and self._collect(children[0], found):
            self.size -= children.popleft().size
            self.frames -= 1
        return not children and frame.is_over
