"""The models that the steps of an ensemble run, as they are at one time, and what requests to them look like.

A request of the ensemble stays with the members that it began with. One that is unloaded meanwhile is held until the
last such request is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import BackendError, InvalidArgumentError
from naiad.execution.batching.reshape import as_clients_get
from naiad.execution.ensemble.fast_path import CompiledPlan, compile_plan
from naiad.execution.ensemble.labels import follow
from naiad.execution.model.interface import ServingModel
from naiad.execution.model_directory import CalledInput, ModelDirectory
from naiad.request import Array, InferRequest, RequestOptions, request_label
from naiad.scheduling.ensemble.graph import EnsembleError, EnsembleStep, Graph, build
from naiad.scheduling.ensemble.plan import Plan
from naiad.scheduling.ensemble.progress import Absent
from naiad.tensor.dtypes import BY_NUMPY

MAX_FORMS: Final = 256
"""Forms of requests to one step that are remembered, and plans of one ensemble."""

Shape = tuple[int, ...]


class MemberRequestSchema(NamedTuple):
    """What requests to a step have in common whose inputs have the same datatypes and shapes.

    ``shapes`` are those that inputs are brought to, by name; empty where all are right as they are.
    """

    options: RequestOptions
    shapes: Mapping[str, Shape]


class CachedPlan(NamedTuple):
    """How requests for the same outputs go: their plan, and the lane that the ordinary ones among them take."""

    plan: Plan
    lane: CompiledPlan | None


class Members:
    """The members of one ensemble at one time.

    Attributes:
        graph: the ensemble's, with them.
        targets: who runs each step.
        runs: requests that began with them and are not answered.
    """

    __slots__ = ("_checks", "_find", "_forms", "_found", "_held", "_names", "_ways", "graph", "runs", "spec", "targets")

    def __init__(self, spec: ModelSpec, models: ModelDirectory) -> None:
        """Find the members of the ensemble ``spec``.

        Raises:
            EnsembleError: they do not fit it.
            NaiadError: one is not there.
        """
        ensemble = spec.ensemble
        if ensemble is None:
            raise EnsembleError(f"model '{spec.name}' is no ensemble")
        self.spec = spec
        self._find = models.find
        self._checks = models.check
        self._names = [(s.model, None if s.version is None else str(s.version)) for s in ensemble.steps]
        found = {name: cast(ServingModel, models.find(*name)) for name in dict.fromkeys(self._names)}
        self.targets = tuple(found[name] for name in self._names)
        self._found = tuple((*name, target) for name, target in found.items())
        self.graph: Graph = build(spec, [target.spec for target in self.targets])
        for target in found.values():
            target.note_batches()
        self.runs = 0
        self._held: list[ServingModel] = []
        self._ways: dict[tuple[object, ...], CachedPlan] = {}
        self._forms: list[dict[object, MemberRequestSchema]] = [{} for _ in ensemble.steps]

    def are_current(self) -> bool:
        """Whether each name leads to the same model as before.

        Raises:
            NaiadError: a model is not there any more.
        """
        find = self._find
        for name, version, target in self._found:  # noqa: SIM110
            if find(name, version) is not target:
                return False
        return True

    @property
    def problem(self) -> str:
        """What keeps members from working."""
        return "; ".join(f"model '{m.name}': {m.problem}" for m in dict.fromkeys(self.targets) if m.problem)

    def label(self, spec: ModelSpec) -> None:
        """Let the outputs of ``spec`` have the labels that these have, where they follow them."""
        if spec.ensemble is not None:
            follow(spec, spec.ensemble, [target.spec for target in self.targets])

    # Those that go

    @property
    def holds(self) -> bool:
        """Whether any of them is held, so that its requests have to be expected."""
        return bool(self._held)

    def forget(self, model: ServingModel) -> None:
        """A model is being unloaded: hold it for the requests that began with it."""
        if self.runs and model in self.targets and model not in self._held:
            model.expect()
            self._held.append(model)

    def let_go(self) -> None:
        """A request that began with these is answered."""
        self.runs -= 1
        if self._held and not self.runs:
            held, self._held = self._held, []
            for model in held:
                model.release()

    def submit(self, request: InferRequest, target: ServingModel) -> None:
        """Hand the request of a step to its model; errors as ``LoadedModel.submit``."""
        if target in self._held:
            target.expect()
            target.submit_reserved(request)
            return
        target.submit(request)

    def find_again(self, step: EnsembleStep) -> ServingModel:
        """Who runs a step now; errors as ``ModelDirectory.find``."""
        return cast(ServingModel, self._find(*self._names[step.index]))

    # Requests

    def way(self, request: InferRequest) -> CachedPlan:
        """How a request of the ensemble goes."""
        inputs = request.inputs
        given = None if len(inputs) == len(self.spec.inputs) else tuple(sorted(inputs))
        key = request.options.outputs, given
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= MAX_FORMS:
                self._ways.clear()
            plan = Plan(self.graph, request.options.outputs, inputs)
            found = self._ways[key] = CachedPlan(plan, compile_plan(plan, self.spec, self.targets))
        return found

    def form(
        self, step: EnsembleStep, values: Sequence[Any], asked: RequestOptions, request_id: str
    ) -> MemberRequestSchema:
        """What the request to a step looks like that reads these values of the graph's tensors.

        Raises:
            NaiadError: they do not fit the inputs of its model.
        """
        key = tuple(
            [
                None if value.__class__ is Absent else (value.dtype.num, value.shape)
                for value in [values[tensor] for _, tensor, _ in step.inputs]
            ]
        )
        forms = self._forms[step.index]
        found = forms.get(key)
        if found is None:
            if len(forms) >= MAX_FORMS:
                forms.clear()
            found = forms[key] = self._made(step, values, request_id)
        if asked.parameters or asked.priority or asked.timeout_us or asked.flags or asked.correlation_id:
            return MemberRequestSchema(_with_asked(found.options, asked), found.shapes)
        return found

    def _made(self, step: EnsembleStep, values: Sequence[Any], request_id: str) -> MemberRequestSchema:
        spec = self.targets[step.index].spec
        given: list[CalledInput] = []
        shapes: dict[str, Shape] = {}
        for name, tensor, _ in step.inputs:
            value = values[tensor]
            if value.__class__ is Absent:
                continue
            dtype = BY_NUMPY.get(value.dtype)
            if dtype is None:
                raise InvalidArgumentError(
                    f"{request_label(request_id)}input '{name}' for model '{spec.name}' has elements of "
                    f"{value.dtype}, which is no datatype of the protocol"
                )
            shape = fitted(value.shape, spec.inputs[name], spec.max_batch_size > 0)
            if shape != value.shape:
                shapes[name] = shape
            given.append(CalledInput(name, dtype, shape))
        checked = self._checks(spec, given, [name for name, _ in step.outputs], request_id)
        return MemberRequestSchema(RequestOptions(checked.outputs, checked.rows, checked.shape_key), shapes)


def fitted(shape: Shape, tensor: TensorSpec, batches: bool) -> Shape:
    """A shape with or without a batch dimension of one, as a tensor is configured to have one or not."""
    rank = len(tensor.dims)
    if batches and len(shape) == rank:
        return (1, *shape)
    if not batches and len(shape) == rank + 1 and shape[0] == 1:
        return shape[1:]
    return shape


def as_outside(array: Array, tensor: TensorSpec, spec: ModelSpec) -> Array:
    """What a step wrote, in the shape that callers of the ensemble ``spec`` get (``reshape``).

    Raises:
        BackendError: it has no such shape.
    """
    batches = spec.max_batch_size > 0
    if tensor.reshape is None:
        shape = fitted(array.shape, tensor, batches)
        return array if shape == array.shape else array.reshape(shape)
    inside = fitted(array.shape, replace(tensor, dims=tensor.reshape), batches)
    shape = as_clients_get(inside, tensor, spec)
    try:
        return array.reshape(shape)
    except ValueError:
        raise BackendError(
            f"output '{tensor.name}' of ensemble '{spec.name}' has shape {list(array.shape)}, which does not reshape "
            f"to {list(shape)}"
        ) from None


def _with_asked(options: RequestOptions, asked: RequestOptions) -> RequestOptions:
    """What the caller of the ensemble says concerns each of its steps."""
    return RequestOptions(
        options.outputs,
        options.rows,
        options.shape_key,
        asked.parameters,
        asked.priority,
        asked.timeout_us,
        asked.flags,
        asked.correlation_id,
    )
