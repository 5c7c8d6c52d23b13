"""Compiled plans of ensembles, for requests whose steps all run once and respond once.

Such a request needs a look-up for each tensor and a count of the steps that are left, and no decisions. A request that
needs decisions, from its beginning or later, is run by ``EnsembleRun``.
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
_NO_OPTIONS: Final = RequestOptions(())
# Is no dtype, so the first request of a node fails the comparison by identity.
_UNKNOWN: Final = object()


class PlanNode:
    """One step of a compiled plan.

    Attributes:
        task: the step, in the shape in which the request of a step refers to it.
        target: the model that runs it.
        inputs: for each the name in the model and the number of the tensor.
        name, tensor: its only input, as in ``inputs``; "" and 0 when it reads several.
        outputs: for each the name in the model and the number of the tensor.
        followers: the nodes that read an output of this one.
        waits: how many nodes write its inputs.
        resident: the outputs that stay on the device of the model, by their names there; None for a node whose inputs
            and outputs are all in the processor's memory.
        dtype, shape, options: of the last request with one input, whose tensor went to the model without a reshape. A
            request like it needs no schema.
    """

    __slots__ = (
        "dtype",
        "followers",
        "inputs",
        "name",
        "options",
        "outputs",
        "resident",
        "shape",
        "target",
        "task",
        "tensor",
        "waits",
    )

    def __init__(self, step: EnsembleStep, inputs: Sequence[tuple[str, int]], target: ServingModel) -> None:
        # One task for all requests: a plan without decoupled steps has no frames to tell apart.
        self.task = Task(_NO_FRAME, step)
        self.target = target
        self.inputs = tuple(inputs)
        self.name, self.tensor = self.inputs[0] if len(self.inputs) == len(step.inputs) == 1 else ("", 0)
        self.outputs = step.outputs
        self.followers: tuple[PlanNode, ...] = ()
        self.waits = 0
        self.resident: frozenset[str] | None = None
        self.dtype: object = _UNKNOWN
        self.shape: tuple[int, ...] = ()
        self.options = _NO_OPTIONS

    @property
    def index(self) -> int:
        """The index of its step in the configuration."""
        return self.task.step.index

    def remember(self, value: Array, options: RequestOptions) -> None:
        """Cache the options of requests whose only input has the datatype and shape of ``value``."""
        self.dtype, self.shape, self.options = value.dtype, value.shape, options


class CompiledPlan:
    """The common part of requests for the same outputs with the same inputs.

    Attributes:
        plan: the steps that they need.
        nodes: these steps, each after the ones that write its inputs.
        first: the nodes that read nothing but inputs of the ensemble.
        values: of each tensor, its value before a request has set it.
        inputs: of the ensemble: name and number of the tensor.
        waits: by the index of the step, how many nodes write its inputs; None when that is at most one for all, so that
            each may run as soon as the node before it has responded.
        outputs: of the ensemble: name, number of the tensor, datatype and number of dimensions.
    """

    __slots__ = ("first", "inputs", "nodes", "outputs", "plan", "values", "waits")

    def __init__(self, plan: Plan, spec: ModelSpec, targets: Sequence[ServingModel]) -> None:
        self.plan = plan
        given = set(plan.given.values())
        self.inputs = tuple(plan.given.items())
        self.values: list[Any] = [None] * len(plan.readers)
        for tensor in plan.graph.inputs.values():
            self.values[tensor] = NOT_GIVEN
        made = {tensor for step in plan.needed for _, tensor in step.outputs}
        self.nodes = tuple(
            PlanNode(step, [(n, t) for n, t, _ in step.inputs if t in given or t in made], targets[step.index])
            for step in plan.needed
        )
        for node in self.nodes:
            written = {tensor for _, tensor in node.outputs}
            node.followers = tuple(other for other in self.nodes if written & {tensor for _, tensor in other.inputs})
            for other in node.followers:
                other.waits += 1
        self.first = tuple(node for node in self.nodes if not node.waits)
        self.waits: list[int] | None = None
        if any(node.waits > 1 for node in self.nodes):
            self.waits = [0] * len(plan.graph.steps)
            for node in self.nodes:
                self.waits[node.index] = node.waits
        batch = 1 if spec.max_batch_size > 0 else 0
        self.outputs = tuple(
            (name, tensor, spec.outputs[name].dtype.numpy, len(spec.outputs[name].dims) + batch)
            for name, tensor in plan.outputs.items()
        )


def compile_plan(plan: Plan, spec: ModelSpec, targets: Sequence[ServingModel]) -> CompiledPlan | None:
    """Compile a plan. None for one that needs decisions: conditions, responses of decoupled models, outputs that no
    step writes or that callers see in another shape."""
    steps = plan.needed
    if not steps or not plan.is_plain or plan.graph.is_decoupled or any(step.conditions for step in steps):
        return None
    # An output that no step writes is an input, which callers may leave out.
    if max(plan.writers) > 1 or not all(plan.writers[tensor] for tensor in plan.outputs.values()):
        return None
    # ``EnsembleRun`` reshapes outputs.
    if any(spec.outputs[name].reshape is not None for name in plan.outputs):
        return None
    return CompiledPlan(plan, spec, targets)
