"""How far one request has come in its ensemble: which steps may run now, and which responses are complete.

Decisions only: what a tensor is does not matter here, but for the truth of a condition. A tensor is *settled* once it
is known what it is, or that it will not be. A step may run when all that it reads is settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from naiad.scheduling.ensemble.graph import EnsembleStep
from naiad.scheduling.ensemble.plan import Plan


class Absent(Enum):
    """Why a tensor is settled and not there."""

    NOT_GIVEN = "the request does not have it"
    """An optional input of the ensemble. Steps that read it run without it."""
    SKIPPED = "no step that writes it has run"
    """The condition of each such step was against it, or it reads what was not written for that reason."""
    MISSING = "the model of its step did not give it"


NOT_GIVEN: Final = Absent.NOT_GIVEN
SKIPPED: Final = Absent.SKIPPED
MISSING: Final = Absent.MISSING


class Frame:
    """One scope while it runs: that of a request, or of one response of a decoupled step.

    Attributes:
        values: of each tensor, None before it is settled.
        left: outputs of the ensemble that are not settled.
        size: the bytes that were written in it.
        is_over: the decoupled step in it gives no more responses.
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
        """A frame for ``scope`` within this one: it begins with all that is settled here, and is told of the rest."""
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
    """One request on its way through a ``Plan``.

    ``begin`` and what follows it give back the steps that may run now, each once. For each the caller says what came
    of it: ``wrote`` for a model with one response; ``responded`` any number of times and then ``ended`` for a decoupled
    one.

    Args:
        plan: what is needed.
        is_true: the truth of a tensor that is a condition. What it raises goes to the caller of these.

    Attributes:
        open: steps that were given out and have not ended.
        frames: how many responses of decoupled steps are held.
        size: the bytes that steps wrote and that are held.
        is_stuck: a decoupled step cannot run, for what it reads is missing.
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
            root.values[number] = inputs.get(name, NOT_GIVEN)
            self._settled.append((root, number))
        return self._go_on()

    def wrote(self, task: Task, outputs: Mapping[str, Any], size: int = 0) -> list[Task]:
        """A step has run, once; ``outputs`` by their names in the model, of ``size`` bytes together."""
        self.open -= 1
        task.frame.size += size
        self.size += size
        for name, number in task.step.outputs:
            self._write(task.frame, number, outputs.get(name, MISSING))
        return self._go_on()

    def responded(self, task: Task, outputs: Mapping[str, Any], size: int = 0) -> list[Task]:
        """A decoupled step has given one of its responses; as ``wrote``."""
        frame = task.frame.inside(task.step.gives)
        frame.size = size
        self.size += size
        self.frames += 1
        for name, number in task.step.outputs:
            self._write(frame, number, outputs.get(name, MISSING))
        return self._go_on()

    def ended(self, task: Task) -> None:
        """A decoupled step gives no more."""
        self.open -= 1
        task.frame.is_over = True

    def responses(self) -> list[dict[str, Any]]:
        """Those that are complete and whose turn it is, by the outputs' names; a tensor may be ``Absent``."""
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
        """What one of the steps that may write a tensor has come to."""
        if frame.values[tensor] is not None:
            return
        frame.writers[tensor] -= 1
        if value is SKIPPED and frame.writers[tensor] > 0:
            # The other one may write it.
            return
        frame.values[tensor] = value
        self._settled.append((frame, tensor))

    def _go_on(self) -> list[Task]:
        """Follow what is settled to the steps that may run. Not by recursion: graphs may be long."""
        plan, settled = self._plan, self._settled
        readers, is_wanted = plan.readers, plan.is_wanted
        while settled:
            frame, tensor = settled.pop()
            if is_wanted[tensor]:
                frame.left -= 1
            waiting = frame.waiting
            for step in readers[tensor]:
                waiting[step.index] -= 1
                # A frame is told of all that is settled around it, yet a step runs in its own scope alone.
                if not waiting[step.index] and step.scope == frame.scope:
                    self._decide(frame, step)
            for child in frame.children or ():
                child.values[tensor] = frame.values[tensor]
                settled.append((child, tensor))
        ready, self._ready = self._ready, []
        return ready

    # Steps

    def _decide(self, frame: Frame, step: EnsembleStep) -> None:
        """All that a step reads is settled: it runs, or it will not."""
        why = self._against(frame, step)
        if why is None:
            self.open += 1
            self._ready.append(Task(frame, step))
        elif step.gives != step.scope:
            # There will be no response that what depends on it could run for.
            frame.is_over = True
            self.is_stuck = self.is_stuck or why is MISSING
        else:
            for _, number in step.outputs:
                self._write(frame, number, why)

    def _against(self, frame: Frame, step: EnsembleStep) -> Absent | None:
        values = frame.values
        for tensor, wanted in step.conditions:
            value = values[tensor]
            if value is MISSING:
                return Absent.MISSING
            # What is not there is not true.
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
        """Take what is complete out of a frame, in order; whether nothing more comes of it."""
        if frame.scope == self._plan.scope:
            if frame.left:
                return False
            found.append(self._outputs(frame))
            return True
        children = frame.children
        while children and self._collect(children[0], found):
            self.size -= children.popleft().size
            self.frames -= 1
        return not children and frame.is_over
