"""The lane of an ensemble: the way that ordinary requests take through its steps, worked out once for all of them.

A request is ordinary where nothing has to be decided on its way: each of its steps runs and answers once. It then
needs a look-up for each tensor and a count of the steps that are left. What is out of the ordinary, from its beginning
or later, is for ``EnsembleRun``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from naiad.request import Array, RequestOptions
from naiad.scheduling.ensemble.graph import EnsembleStep
from naiad.scheduling.ensemble.plan import Plan
from naiad.scheduling.ensemble.progress import NOT_GIVEN, Frame, Task

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec
    from naiad.execution.model.interface import ServingModel

_NO_FRAME: Final = Frame(0, [], [], [], 0)
_NO_TERMS: Final = RequestOptions(())
_UNKNOWN: Final = object()


class PlanNode:
    """One step of a lane.

    Attributes:
        task: what stands for it where the requests of steps are asked for theirs.
        target: who runs it.
        name, tensor: its one input, by its name in the model and as a number; "" when it reads several, which
            ``inputs`` has.
        outputs: for each the name in the model and the tensor.
        followers: the legs that read what it writes.
        waits: for how many legs it waits; those before it that it does not read do not count.
        dtype, shape, terms: of the last request with one input, whose tensor went to the model as it was.
    """

    __slots__ = (
        "dtype",
        "followers",
        "inputs",
        "name",
        "options",
        "outputs",
        "shape",
        "target",
        "task",
        "tensor",
        "waits",
    )

    def __init__(self, step: EnsembleStep, inputs: Sequence[tuple[str, int]], target: ServingModel) -> None:
        self.task = Task(_NO_FRAME, step)
        self.target = target
        self.inputs = tuple(inputs)
        self.name, self.tensor = self.inputs[0] if len(self.inputs) == len(step.inputs) == 1 else ("", 0)
        self.outputs = step.outputs
        self.followers: tuple[PlanNode, ...] = ()
        self.waits = 0
        self.dtype: object = _UNKNOWN
        self.shape: tuple[int, ...] = ()
        self.options = _NO_TERMS

    @property
    def index(self) -> int:
        """Its step's place in the configuration."""
        return self.task.step.index

    def know(self, value: Array, options: RequestOptions) -> None:
        """Remember what a request looks like whose one input is like ``value``."""
        self.dtype, self.shape, self.options = value.dtype, value.shape, options


class CompiledPlan:
    """What all ordinary requests for the same outputs have in common.

    Attributes:
        plan: theirs.
        legs: in an order in which each comes after those that it waits for.
        first: those that wait for none.
        values: of each tensor, what is known of it before there is a request.
        inputs: of the ensemble that requests bring: name and tensor.
        waits: of each step, for how many legs it waits; None where none waits for more than one, so that it is its turn
            when that one has answered.
        outputs: of the ensemble: name, tensor, and the datatype and the number of dimensions that it has there.
    """

    __slots__ = ("first", "inputs", "legs", "outputs", "plan", "values", "waits")

    def __init__(self, plan: Plan, spec: ModelSpec, targets: Sequence[ServingModel]) -> None:
        self.plan = plan
        given = set(plan.given.values())
        self.inputs = tuple(plan.given.items())
        self.values: list[Any] = [None] * len(plan.readers)
        for tensor in plan.graph.inputs.values():
            self.values[tensor] = NOT_GIVEN
        made = {tensor for step in plan.needed for _, tensor in step.outputs}
        self.legs = tuple(
            PlanNode(step, [(n, t) for n, t, _ in step.inputs if t in given or t in made], targets[step.index])
            for step in plan.needed
        )
        for leg in self.legs:
            written = {tensor for _, tensor in leg.outputs}
            leg.followers = tuple(other for other in self.legs if written & {tensor for _, tensor in other.inputs})
            for other in leg.followers:
                other.waits += 1
        self.first = tuple(leg for leg in self.legs if not leg.waits)
        self.waits: list[int] | None = None
        if any(leg.waits > 1 for leg in self.legs):
            self.waits = [0] * len(plan.graph.steps)
            for leg in self.legs:
                self.waits[leg.index] = leg.waits
        batch = 1 if spec.max_batch_size > 0 else 0
        self.outputs = tuple(
            (name, tensor, spec.outputs[name].dtype.numpy, len(spec.outputs[name].dims) + batch)
            for name, tensor in plan.outputs.items()
        )


def compile_plan(plan: Plan, spec: ModelSpec, targets: Sequence[ServingModel]) -> CompiledPlan | None:
    """The lane of a plan; None where its requests have decisions to make: conditions, responses of decoupled models,
    outputs that no step writes or that have other shapes outside."""
    steps = plan.needed
    if not steps or not plan.is_plain or plan.graph.is_decoupled or any(step.conditions for step in steps):
        return None
    # An output that no step writes is an input, which may not be given.
    if max(plan.writers) > 1 or not all(plan.writers[tensor] for tensor in plan.outputs.values()):
        return None
    # A shape that callers do not see as the steps do is for the rules.
    if any(spec.outputs[name].reshape is not None for name in plan.outputs):
        return None
    return CompiledPlan(plan, spec, targets)
