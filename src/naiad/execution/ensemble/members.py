"""The members of an ensemble at one time, and the requests that its steps make.

A request of the ensemble stays with the members that it began with. A member that is unloaded meanwhile keeps running
until the last such request has its response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from naiad.bounded_dict import BoundedDict
from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import BackendError, InvalidArgumentError
from naiad.execution.batching.reshape import as_clients_get
from naiad.execution.ensemble.device_plan import leave_on_devices
from naiad.execution.ensemble.fast_path import CompiledPlan, compile_plan
from naiad.execution.ensemble.labels import follow
from naiad.execution.model.interface import ServingModel
from naiad.execution.model_directory import CalledInput, ModelDirectory
from naiad.request import Array, InferRequest, RequestOptions, request_label
from naiad.scheduling.ensemble.graph import EnsembleError, EnsembleStep, Graph, build
from naiad.scheduling.ensemble.plan import Plan
from naiad.scheduling.ensemble.progress import Absent
from naiad.tensor.dtypes import BY_NUMPY

MAX_CACHED: Final = 256
"""How many schemas of one step, and how many plans of one ensemble, are cached."""

Shape = tuple[int, ...]


class MemberRequestSchema(NamedTuple):
    """The common part of requests to a step whose inputs have the same datatypes and shapes.

    Attributes:
        options: of these requests, without those of the ensemble's caller.
        shapes: by name, the shapes that inputs are reshaped to; inputs that fit are not in it.
    """

    options: RequestOptions
    shapes: Mapping[str, Shape]


class CachedPlan(NamedTuple):
    """The plan of requests for the same outputs, and the compiled plan of those that need no decisions, if any."""

    plan: Plan
    compiled: CompiledPlan | None


class Members:
    """The members of one ensemble at one time.

    Attributes:
        graph: of the ensemble, with these members.
        targets: the model of each step.
        runs: requests that began with these members and have no response yet.
        only_reader: as in ``Graph``.
        unbatched: the tensors that a model without batches writes.
    """

    __slots__ = (
        "_checks",
        "_find",
        "_found",
        "_names",
        "_plans",
        "_reserved",
        "_schemas",
        "graph",
        "only_reader",
        "runs",
        "spec",
        "targets",
        "unbatched",
    )

    def __init__(self, spec: ModelSpec, models: ModelDirectory) -> None:
        """Find the members of the ensemble ``spec``.

        Raises:
            EnsembleError: the members do not fit the ensemble.
            NaiadError: a member is not loaded.
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
        self.only_reader = self.graph.only_reader
        self.unbatched = frozenset(
            tensor
            for step, target in zip(ensemble.steps, self.targets, strict=True)
            if not target.spec.max_batch_size
            for _, tensor in step.outputs
        )
        for target in found.values():
            # The time that a step took is read from the batch that it ran in.
            target.note_batches()
        self.runs = 0
        self._reserved: list[ServingModel] = []
        self._plans: dict[tuple[object, ...], CachedPlan] = BoundedDict(MAX_CACHED)
        self._schemas: list[dict[object, MemberRequestSchema]] = [BoundedDict(MAX_CACHED) for _ in ensemble.steps]

    def are_current(self) -> bool:
        """Whether each name still leads to the same model. Costs a look-up for each member.

        Raises:
            NaiadError: a member is not loaded any more.
        """
        find = self._find
        for name, version, target in self._found:  # noqa: SIM110
            if find(name, version) is not target:
                return False
        return True

    @property
    def problem(self) -> str:
        """Why members cannot run requests, "" when all can."""
        return "; ".join(f"model '{m.name}': {m.problem}" for m in dict.fromkeys(self.targets) if m.problem)

    def label(self, spec: ModelSpec) -> None:
        """Give the outputs of ``spec`` without a label file the labels of these members."""
        if spec.ensemble is not None:
            follow(spec, spec.ensemble, [target.spec for target in self.targets])

    # Members that are unloaded

    @property
    def has_reserved(self) -> bool:
        """Whether a member is being unloaded, so that ``submit`` has to use its reservation."""
        return bool(self._reserved)

    def reserve(self, model: ServingModel) -> None:
        """Keep a model that is being unloaded running for the requests that began with it."""
        if self.runs and model in self.targets and model not in self._reserved:
            model.reserve()
            self._reserved.append(model)

    def run_ended(self) -> None:
        """Count a request that has ended; the last one releases the members that are being unloaded."""
        self.runs -= 1
        if self._reserved and not self.runs:
            # Taken out first: ``release`` may let a model end, and what follows may come back here.
            reserved, self._reserved = self._reserved, []
            for model in reserved:
                model.release()

    def submit(self, request: InferRequest, target: ServingModel) -> None:
        """Submit the request of a step to its model; errors as ``LoadedModel.submit``."""
        if target in self._reserved:
            # ``submit`` of a stopping model refuses; ``submit_reserved`` ends a reservation, so each request needs one.
            target.reserve()
            target.submit_reserved(request)
            return
        target.submit(request)

    def find_again(self, step: EnsembleStep) -> ServingModel:
        """The model that would run a step of a new request; errors as ``ModelDirectory.find``."""
        return cast(ServingModel, self._find(*self._names[step.index]))

    # Requests

    def plan_for(self, request: InferRequest) -> CachedPlan:
        """The plan of a request of the ensemble."""
        inputs = request.inputs
        # Requests with all inputs, which most are, need no sorted names.
        given = None if len(inputs) == len(self.spec.inputs) else tuple(sorted(inputs))
        key = request.options.outputs, given
        found = self._plans.get(key)
        if found is None:
            plan = Plan(self.graph, request.options.outputs, inputs)
            compiled = compile_plan(plan, self.spec, self.targets)
            if compiled is not None:
                leave_on_devices(compiled)
            found = self._plans[key] = CachedPlan(plan, compiled)
        return found

    def schema(
        self, step: EnsembleStep, values: Sequence[Any], caller: RequestOptions, request_id: str
    ) -> MemberRequestSchema:
        """The schema of the request to a step.

        Args:
            step: the step.
            values: by the number of the tensor, its array or why there is none.
            caller: the options of the ensemble's caller.
            request_id: for the texts of errors.

        Raises:
            NaiadError: the values do not fit the inputs of the model.
        """
        key = tuple(
            [
                None if value.__class__ is Absent else (value.dtype.num, value.shape)
                for value in [values[tensor] for _, tensor, _ in step.inputs]
            ]
        )
        schemas = self._schemas[step.index]
        found = schemas.get(key)
        if found is None:
            found = schemas[key] = self._make_schema(step, values, request_id)
        # Not cached: a correlation id or parameters may differ with every request.
        if caller.parameters or caller.priority or caller.timeout_us or caller.flags or caller.correlation_id:
            return MemberRequestSchema(_with_caller_options(found.options, caller), found.shapes)
        return found

    def _make_schema(self, step: EnsembleStep, values: Sequence[Any], request_id: str) -> MemberRequestSchema:
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
            shape = fit_shape(value.shape, spec.inputs[name], spec.max_batch_size > 0)
            if shape != value.shape:
                shapes[name] = shape
            given.append(CalledInput(name, dtype, shape))
        checked = self._checks(spec, given, [name for name, _ in step.outputs], request_id)
        return MemberRequestSchema(RequestOptions(checked.outputs, checked.rows, checked.shape_key), shapes)


def fit_shape(shape: Shape, tensor: TensorSpec, batches: bool) -> Shape:
    """``shape`` with a batch dimension of one added or removed, so that it has the rank of ``tensor`` in its model."""
    # A model that batches and one that does not differ in this dimension alone.
    rank = len(tensor.dims)
    if batches and len(shape) == rank:
        return (1, *shape)
    if not batches and len(shape) == rank + 1 and shape[0] == 1:
        return shape[1:]
    return shape


def reshape_output(array: Array, tensor: TensorSpec, spec: ModelSpec, is_unbatched: bool) -> Array:
    """An output of a step, in the shape that callers of the ensemble ``spec`` get (``reshape``).

    ``is_unbatched``: a model without batches wrote it. What one with batches gives has the rank that it chose.

    Raises:
        BackendError: it has another number of elements.
    """
    batches = spec.max_batch_size > 0
    if tensor.reshape is None:
        if batches and not is_unbatched:
            return array
        shape = fit_shape(array.shape, tensor, batches)
        return array if shape == array.shape else array.reshape(shape)
    inside = fit_shape(array.shape, replace(tensor, dims=tensor.reshape), batches)
    shape = as_clients_get(inside, tensor, spec)
    try:
        return array.reshape(shape)
    except ValueError:
        raise BackendError(
            f"output '{tensor.name}' of ensemble '{spec.name}' has shape {list(array.shape)}, which does not reshape "
            f"to {list(shape)}"
        ) from None


def _with_caller_options(options: RequestOptions, caller: RequestOptions) -> RequestOptions:
    """``options`` of a step with those of the ensemble's caller, which apply to each step."""
    return RequestOptions(
        options.outputs,
        options.rows,
        options.shape_key,
        caller.parameters,
        caller.priority,
        caller.timeout_us,
        caller.flags,
        caller.correlation_id,
    )
