"""The graph of an ensemble, checked against the models of its steps.

Texts are those of the reference (``ensemble_utils.cc``), which checks in this order.

A step whose model is decoupled may send any number of responses. Steps that depend on these run once for each response:
in a *scope* of their own inside the scope of the step. Scope 0 is that of the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NoReturn

from naiad.config.ensemble import UNLESS, WHEN, EnsembleSpec, StepSpec
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec, TensorSpec

MAX_DEPTH: Final = 17
"""The most scopes inside each other, the scope of the request included."""
MAX_ENSEMBLES: Final = 32
"""The most ensembles inside each other: each calls the next, and the stack of the interpreter is bounded."""


class EnsembleError(ModelLoadError):
    """The graph of an ensemble cannot be run with the models that are loaded."""


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step of a graph. Tensors are numbers.

    Attributes:
        index, model: as in its configuration.
        inputs: for each the name in the model, the tensor, and whether it is optional.
        outputs: for each the name in the model and the tensor.
        conditions: tensors, with the truth that each must have for the step to run.
        scope: the scope that it runs in.
        gives: the scope of its outputs: a new one inside ``scope`` for a decoupled model, else the same.
    """

    index: int
    model: str
    inputs: tuple[tuple[str, int, bool], ...]
    outputs: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[int, bool], ...] = ()
    scope: int = 0
    gives: int = 0

    @property
    def is_decoupled(self) -> bool:
        """Whether it may send any number of responses."""
        return self.gives != self.scope

    @property
    def reads(self) -> frozenset[int]:
        """The tensors that have to be settled before it runs."""
        return frozenset([t for _, t, _ in self.inputs] + [t for t, _ in self.conditions])


@dataclass(frozen=True, slots=True)
class Graph:
    """The checked steps of an ensemble.

    Attributes:
        tensors: the names of the tensors by number; the inputs of the ensemble come first.
        inputs, outputs: the ensemble's own, by name.
        steps: by their index in the configuration.
        order: indices of the steps, each after the steps that it depends on.
        scopes: of each tensor.
        parents: of each scope, the scope around it; -1 for that of the request.
        depth: how many ensembles lie inside each other, this one included.
    """

    tensors: tuple[str, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    steps: tuple[EnsembleStep, ...]
    order: tuple[int, ...]
    scopes: tuple[int, ...]
    parents: tuple[int, ...]
    depth: int = 1

    @property
    def is_decoupled(self) -> bool:
        """Whether a request may get any number of responses."""
        return len(self.parents) > 1

    @property
    def only_reader(self) -> int:
        """The index of the step that alone reads the ensemble's inputs, each of them once; -1 if there is none."""
        given = set(self.inputs.values())
        read = [(tensor, step.index) for step in self.steps for _, tensor, _ in step.inputs if tensor in given]
        conditions = {tensor for step in self.steps for tensor, _ in step.conditions}
        readers = {index for _, index in read}
        if len(readers) != 1 or len(read) != len({tensor for tensor, _ in read}):
            return -1
        return -1 if given & conditions or given & set(self.outputs.values()) else readers.pop()


@dataclass(slots=True)
class _Known:
    """A tensor of the ensemble as the configuration of a model describes it."""

    model: str
    tensor: TensorSpec
    batches: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return self.tensor.dims

    @property
    def full_dims(self) -> tuple[int, ...]:
        return (-1, *self.dims) if self.batches else self.dims


def build(spec: ModelSpec, members: Mapping[str, ModelSpec] | Sequence[ModelSpec]) -> Graph:
    """Build the graph of the ensemble ``spec``.

    Args:
        spec: the ensemble.
        members: the models that the steps run, by name or one for each step.

    Raises:
        EnsembleError: the steps do not fit each other, or not the models.
    """
    ensemble = spec.ensemble
    if ensemble is None:
        raise EnsembleError(f"model '{spec.name}' is no ensemble")
    models = [members[s.model] for s in ensemble.steps] if isinstance(members, Mapping) else list(members)
    _Checks(spec).check(ensemble.steps, models)
    return _Builder(spec, ensemble, models).graph()


@dataclass(slots=True)
class _Checks:
    """Checks names, datatypes, shapes and batch sizes."""

    spec: ModelSpec
    known: dict[str, _Known] = field(default_factory=dict)

    def check(self, steps: Sequence[StepSpec], models: Sequence[ModelSpec]) -> None:
        spec = self.spec
        for tensor in (*spec.inputs.values(), *spec.outputs.values()):
            # Between the steps a tensor has the shape after its ``reshape``.
            inside = tensor if tensor.reshape is None else replace(tensor, dims=tensor.reshape)
            self.known[tensor.name] = _Known(spec.name, inside, spec.max_batch_size > 0)
        for step, model in zip(steps, models, strict=True):
            # A member without batching has 0, which is no limit.
            if 0 < model.max_batch_size < spec.max_batch_size:
                raise EnsembleError(
                    f"ensemble {spec.name} allows maximum batch size {spec.max_batch_size}, but it contains model "
                    f"{model.name} which only allows maximum batch size to be {model.max_batch_size}"
                )
            self._check_inputs(step, model)
            self._check_outputs(step, model)
        # After all outputs: a condition may be written by a later step.
        for step, model in zip(steps, models, strict=True):
            self._check_conditions(step, model)

    def _check_inputs(self, step: StepSpec, model: ModelSpec) -> None:
        inside = f"in ensemble {self.spec.name}, "
        mapped = dict(step.inputs)
        for name, tensor in step.inputs:
            if name not in model.inputs and name not in (WHEN, UNLESS):
                raise EnsembleError(
                    f"{inside}ensemble tensor {tensor} is mapping to non-existing input {name} in model {step.model}"
                )
        for given in model.inputs.values():
            if given.name in mapped:
                self._check_same(mapped[given.name], _Known(step.model, given, model.max_batch_size > 0))
            elif not given.optional:
                raise EnsembleError(
                    f"{inside}input {given.name} in model {step.model} is not mapped to any ensemble tensors"
                )

    def _check_outputs(self, step: StepSpec, model: ModelSpec) -> None:
        for name, tensor in step.outputs:
            made = model.outputs.get(name)
            if made is None:
                raise EnsembleError(
                    f"in ensemble {self.spec.name}, ensemble tensor {tensor} is mapped from non-existing output {name} "
                    f"in model {step.model}"
                )
            self._check_same(tensor, _Known(step.model, made, model.max_batch_size > 0))

    def _check_conditions(self, step: StepSpec, model: ModelSpec) -> None:
        for name, tensor in step.inputs:
            known = self.known.get(tensor)
            # WHEN and UNLESS are conditions only where the model has no input of that name.
            if name in model.inputs or known is None or known.tensor.dtype.wire == "BOOL":
                continue
            raise EnsembleError(
                f"in ensemble {self.spec.name}, step {step.index} (model '{step.model}') runs {name} '{tensor}' is "
                f"true, but model {known.model} says that it is {known.tensor.dtype.config}: it has to be TYPE_BOOL"
            )

    def _check_same(self, tensor: str, found: _Known) -> None:
        known = self.known.setdefault(tensor, found)
        if known is found:
            return
        where = f"in ensemble {self.spec.name}, ensemble tensor {tensor}: "
        if known.tensor.dtype is not found.tensor.dtype:
            raise EnsembleError(
                f"{where}inconsistent data type: {known.tensor.dtype.config} is inferred from model {known.model} "
                f"while {found.tensor.dtype.config} is inferred from model {found.model}"
            )
        # Either is enough: where one of two models batches, only the shapes with the batch agree.
        if not _agree(known.dims, found.dims) and not _agree(known.full_dims, found.full_dims):
            raise EnsembleError(
                f"{where}inconsistent shape: {_text(known.full_dims)} is inferred from model {known.model} while "
                f"{_text(found.full_dims)} is inferred from model {found.model}"
            )


class _Builder:
    """Numbers the tensors, sorts the steps and finds their scopes."""

    def __init__(self, spec: ModelSpec, ensemble: EnsembleSpec, models: Sequence[ModelSpec]) -> None:
        self._spec = spec
        self._steps = ensemble.steps
        self._models = models
        # A dictionary for its order, which numbers the tensors.
        names = dict.fromkeys(spec.inputs)
        for step in ensemble.steps:
            names.update(dict.fromkeys(tensor for _, tensor in step.outputs))
        self._numbers = {name: number for number, name in enumerate(names)}
        self._scopes = [0] * len(names)
        self._parents = [-1]
        self._written: dict[int, int] = {}

    def graph(self) -> Graph:
        spec, numbers = self._spec, self._numbers
        order = self._sorted()
        built = {index: self._step(index) for index in order}
        outputs = {name: numbers[name] for name in spec.outputs}
        self._one_chain((self._scopes[number] for number in outputs.values()), spec.name)
        return Graph(
            tensors=tuple(numbers),
            inputs={name: numbers[name] for name in spec.inputs},
            outputs=outputs,
            steps=tuple(built[index] for index in range(len(self._steps))),
            order=tuple(order),
            scopes=tuple(self._scopes),
            parents=tuple(self._parents),
            depth=depth(spec, self._models),
        )

    def _sorted(self) -> list[int]:
        """Indices of the steps, each after the steps that write its inputs."""
        unwritten: dict[str, int] = {}
        # A count, since two steps with opposite conditions may write one tensor: its readers wait for both.
        for step in self._steps:
            for _, tensor in step.outputs:
                unwritten[tensor] = unwritten.get(tensor, 0) + 1
        order: list[int] = []
        waiting = list(self._steps)
        while waiting:
            able = [s for s in waiting if not any(unwritten.get(tensor) for _, tensor in s.inputs)]
            if not able:
                # Validation of the configuration refuses this already.
                raise EnsembleError(f"ensemble '{self._spec.name}' has steps that depend on each other in a circle")
            for step in able:
                order.append(step.index)
                for _, tensor in step.outputs:
                    unwritten[tensor] -= 1
            taken = {step.index for step in able}
            waiting = [step for step in waiting if step.index not in taken]
        return order

    def _step(self, index: int) -> EnsembleStep:
        """Make a step, after the steps that write its inputs: their scopes are known."""
        step, model, numbers = self._steps[index], self._models[index], self._numbers
        inputs = tuple((n, numbers[t], model.inputs[n].optional) for n, t in step.inputs if n in model.inputs)
        conditions = tuple((numbers[t], n == WHEN) for n, t in step.inputs if n not in model.inputs)
        read = [self._scopes[tensor] for _, tensor, _ in inputs] + [self._scopes[tensor] for tensor, _ in conditions]
        scope = self._one_chain(read, step.model)
        gives = scope
        if model.decoupled:
            gives = len(self._parents)
            self._parents.append(scope)
            if len(self._chain(gives)) > MAX_DEPTH:
                raise EnsembleError(
                    f"ensemble {self._spec.name} has more than {MAX_DEPTH - 1} decoupled models one behind the other"
                )
        outputs = tuple((name, numbers[tensor]) for name, tensor in step.outputs)
        for _, number in outputs:
            # Two steps with opposite conditions may write the same tensor, in the same scope.
            if self._written.setdefault(number, gives) != gives:
                self._refuse(step.model)
            self._scopes[number] = gives
        return EnsembleStep(index, step.model, inputs, outputs, conditions, scope, gives)

    def _one_chain(self, scopes: Iterable[int], model: str) -> int:
        """The innermost of ``scopes``, which must lie inside each other."""
        innermost, around = 0, {0}
        for scope in scopes:
            if scope in around:
                continue
            chain = self._chain(scope)
            if innermost not in chain:
                self._refuse(model)
            innermost, around = scope, chain
        return innermost

    def _chain(self, scope: int) -> set[int]:
        found = set()
        while scope >= 0:
            found.add(scope)
            scope = self._parents[scope]
        return found

    def _refuse(self, model: str) -> NoReturn:
        raise EnsembleError(
            f"in ensemble {self._spec.name}, step of model '{model}' receives inputs originated from different "
            "decoupled models"
        )


def depth(spec: ModelSpec, models: Iterable[ModelSpec]) -> int:
    """How many ensembles lie inside each other in ``spec``, itself included, whose members are ``models``.

    Raises:
        EnsembleError: more than ``MAX_ENSEMBLES``.
    """
    found = 1 + max((model.depth for model in models), default=0)
    if found > MAX_ENSEMBLES:
        raise EnsembleError(
            f"ensemble {spec.name} has {found} ensembles inside each other, itself included; at most {MAX_ENSEMBLES} "
            "are possible"
        )
    return found


def _agree(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _text(dims: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"
